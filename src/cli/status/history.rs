//! Rates over time, and the lines that are drawn of them.

use super::collect::Snapshot;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Points that are kept of each line.
const POINTS_MAX: usize = 60;

/// What a line is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// Messages into a broker, by address.
    BrokerIn(String),
    /// Messages out of a broker.
    BrokerOut(String),
    /// Messages into a shard of a broker, by number.
    ShardIn(String, u16),
    /// Messages into a topic.
    Topic(String),
    /// Messages that a group consumes.
    Group(String),
    /// What a group is behind.
    Behind(String),
}

/// Lines, and the counters that they are made from.
#[derive(Debug, Default)]
pub struct History {
    lines: HashMap<Line, VecDeque<f64>>,
    counters: HashMap<Line, (Instant, i64)>,
}

impl History {
    /// Adds a point to every line. A line that has no point now is forgotten.
    pub fn add(&mut self, snapshot: &Snapshot) {
        let mut points: Vec<(Line, Option<f64>)> = Vec::new();
        let mut counters: Vec<(Line, i64, Option<f64>)> = Vec::new();
        for now in &snapshot.brokers {
            let address = &now.broker.address;
            let of_broker = [
                (Line::BrokerIn(address.clone()), now.put, now.put_tps),
                (Line::BrokerOut(address.clone()), now.got, now.get_tps),
            ];
            for (line, count, told) in of_broker {
                counters.extend(count.map(|count| (line, count, told.or(Some(0.0)))));
            }
            for (number, shard) in &now.by_shard {
                let line = Line::ShardIn(address.clone(), *number);
                counters.extend(shard.put.map(|put| (line, put, None)));
            }
        }
        for (name, now) in &snapshot.topics {
            counters.push((Line::Topic(name.clone()), now.end, Some(now.put_tps)));
        }
        for (name, now) in &snapshot.groups {
            counters.push((Line::Group(name.clone()), now.consumed, Some(now.tps)));
            points.push((Line::Behind(name.clone()), Some(now.behind as f64)));
        }
        for (line, count, told) in counters {
            let before = self.counters.insert(line.clone(), (snapshot.at, count));
            let rate = match before {
                // What a broker says itself is the best there is at first.
                None => told,
                Some((at, before)) => {
                    let seconds = snapshot.at.duration_since(at).as_secs_f64();
                    // A counter that went back began anew.
                    Some((count.saturating_sub(before).max(0)) as f64 / seconds.max(0.001))
                }
            };
            points.push((line, rate));
        }
        let mut lines = HashMap::new();
        for (line, point) in points {
            let mut all = self.lines.remove(&line).unwrap_or_default();
            all.extend(point);
            if all.len() > POINTS_MAX {
                all.pop_front();
            }
            lines.insert(line, all);
        }
        self.counters.retain(|line, _| lines.contains_key(line));
        self.lines = lines;
    }

    /// The last point of a line.
    pub fn last(&self, line: &Line) -> Option<f64> {
        self.lines.get(line)?.back().copied()
    }

    /// The last points of a line as bars, at most `width` of them.
    pub fn spark(&self, line: &Line, width: usize) -> String {
        let points = self.lines.get(line);
        points.map_or_else(String::new, |points| spark(points, width))
    }

    /// The sum of the lines of a kind, point by point from the end.
    pub fn sum(&self, is_part: impl Fn(&Line) -> bool) -> VecDeque<f64> {
        let mut sum: VecDeque<f64> = VecDeque::new();
        let parts = self.lines.iter().filter(|(line, _)| is_part(line));
        for (_, points) in parts {
            for (at, point) in points.iter().rev().enumerate() {
                match at < sum.len() {
                    true => {
                        let at = sum.len() - 1 - at;
                        sum[at] += point;
                    }
                    false => sum.push_front(*point),
                }
            }
        }
        sum
    }
}

/// Points as bars from nothing to the highest of them.
pub fn spark(points: &VecDeque<f64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = points.iter().skip(points.len().saturating_sub(width));
    let highest = shown.clone().copied().fold(0.0, f64::max);
    shown
        .map(|&point| match point > 0.0 && highest > 0.0 {
            // A little is shown as more than nothing.
            true => BARS[((point / highest * 7.0).round() as usize).clamp(1, 7)],
            false => BARS[0],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::collect::{GroupNow, TopicNow};
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn snapshot(at: Instant, end: i64, behind: i64) -> Snapshot {
        let topic = TopicNow {
            end,
            put_tps: 7.0,
            ..TopicNow::default()
        };
        let group = GroupNow {
            behind,
            ..GroupNow::default()
        };
        Snapshot {
            at,
            brokers: Vec::new(),
            topics: BTreeMap::from([("T".to_owned(), topic)]),
            groups: BTreeMap::from([("g".to_owned(), group)]),
            faults: Vec::new(),
        }
    }

    #[test]
    fn rates_come_from_counters_once_there_are_two() {
        let mut history = History::default();
        let begin = Instant::now();
        let topic = Line::Topic("T".to_owned());
        history.add(&snapshot(begin, 100, 5));
        assert_eq!(history.last(&topic), Some(7.0));
        history.add(&snapshot(begin + Duration::from_secs(2), 300, 0));
        assert_eq!(history.last(&topic), Some(100.0));
        history.add(&snapshot(begin + Duration::from_secs(4), 10, 0));
        assert_eq!(history.last(&topic), Some(0.0));
        assert_eq!(history.spark(&topic, 2), "█▁");
        assert_eq!(history.spark(&Line::Behind("g".to_owned()), 9), "█▁▁");
        assert_eq!(
            history.sum(|line| matches!(line, Line::Topic(_))),
            [7.0, 100.0, 0.0]
        );
    }

    #[test]
    fn history_is_bounded_and_forgets_what_is_gone() {
        let mut history = History::default();
        let begin = Instant::now();
        for second in 0..200 {
            history.add(&snapshot(
                begin + Duration::from_secs(second),
                second as i64,
                0,
            ));
        }
        assert_eq!(
            history.lines[&Line::Topic("T".to_owned())].len(),
            POINTS_MAX
        );
        let mut empty = snapshot(begin + Duration::from_secs(300), 0, 0);
        empty.topics.clear();
        empty.groups.clear();
        history.add(&empty);
        assert!(history.lines.is_empty() && history.counters.is_empty());
    }

    #[test]
    fn bars_reach_from_nothing_to_the_highest() {
        let points = VecDeque::from([0.0, 0.01, 50.0, 100.0, f64::NAN]);
        assert_eq!(spark(&points, 9), "▁▂▅█▁");
        assert_eq!(spark(&VecDeque::new(), 9), "");
    }
}
