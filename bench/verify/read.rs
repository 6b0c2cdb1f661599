//! What was read, and the comparison with what was sent.

use super::order::{Order, Standing};
use super::sent::{Queue, Sent};
use super::stamp::Stamp;
use crate::bench::measure::recorder::{Recorder, Window};
use crate::bench::result::Verified;
use std::sync::Arc;

/// Messages behind later ones that are kept for the judgement; more are counted as misplaced.
const BEHIND_MAX: usize = 1 << 20;

/// Everything that one consumer group read of one run.
#[derive(Clone, Debug)]
pub struct Read {
    run: u32,
    places: usize,
    /// All bodies in the topic are of this run.
    alone: bool,
    /// What was sent, where that is over before anything is read.
    sent: Option<Arc<Sent>>,
    /// Messages at the times at which they were due, if these are asked for.
    arrived: Option<Recorder>,
    pairs: Vec<Order>,
    /// Acknowledged messages; all, where it is not known yet which are.
    queues: Vec<Queue>,
    behind: Vec<(usize, u32)>,
    behind_uncounted: u64,
    overtaken: u64,
    doubled: u64,
    wrong: u64,
    others: u64,
}

impl Read {
    /// Nothing read yet. `alone`: nothing but the run's messages is in the topic.
    pub fn new(run: u32, producers: usize, places: usize, alone: bool) -> Read {
        Read {
            run,
            places,
            alone,
            sent: None,
            arrived: None,
            pairs: vec![Order::default(); producers * places],
            queues: vec![Queue::default(); places],
            behind: Vec::new(),
            behind_uncounted: 0,
            overtaken: 0,
            doubled: 0,
            wrong: 0,
            others: 0,
        }
    }

    /// The same, with everything known that was sent: what nobody acknowledged is told apart.
    pub fn of(run: u32, sent: Arc<Sent>, alone: bool) -> Read {
        let read = Read::new(run, sent.producers(), sent.places(), alone);
        Read {
            sent: Some(sent),
            ..read
        }
    }

    /// Also counts the messages that were due in this window, each once.
    pub fn count_within(&mut self, window: Window) {
        self.arrived = Some(Recorder::new(window));
    }

    /// The messages of [`Read::count_within`], handed over.
    pub fn arrived(&mut self) -> Option<Recorder> {
        self.arrived.take()
    }

    /// Notes a message of this place, in the order of the queue. Returns its stamp if it is
    /// one of the run.
    pub fn note(&mut self, place: u32, offset: i64, body: &[u8]) -> Option<Stamp> {
        let Some(stamp) = Stamp::decode(body) else {
            let ours = Stamp::peek(body).is_some_and(|stamp| stamp.run == self.run);
            *(if ours || self.alone {
                &mut self.wrong
            } else {
                &mut self.others
            }) += 1;
            return None;
        };
        if stamp.run != self.run {
            *(if self.alone {
                &mut self.wrong
            } else {
                &mut self.others
            }) += 1;
            return None;
        }
        let index = stamp.producer as usize * self.places + stamp.place as usize;
        if stamp.place != place || index >= self.pairs.len() {
            self.wrong += 1;
            return None;
        }
        let standing = self.pairs[index].note(&stamp);
        if standing == Standing::Doubled {
            self.doubled += 1;
            return Some(stamp);
        }
        let sent = self.sent.as_ref();
        let is_acknowledged = sent.map(|sent| sent.is_acknowledged(index, stamp.sequence));
        match standing {
            Standing::Behind if is_acknowledged == Some(false) => self.overtaken += 1,
            Standing::Behind if self.behind.len() < BEHIND_MAX => {
                self.behind.push((index, stamp.sequence));
            }
            Standing::Behind => self.behind_uncounted += 1,
            Standing::Overtaken => self.overtaken += 1,
            Standing::InOrder | Standing::Doubled => {}
        }
        if is_acknowledged != Some(false) {
            self.queues[place as usize].add(offset, index, stamp.sequence);
        }
        if let Some(arrived) = &mut self.arrived {
            arrived.count(stamp.due, 1, body.len() as u64);
        }
        Some(stamp)
    }

    /// Adds what another thread read of other places.
    pub fn merge(&mut self, other: Read) {
        for (mine, theirs) in self.pairs.iter_mut().zip(&other.pairs) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.queues.iter_mut().zip(&other.queues) {
            mine.merge(theirs);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.arrived, other.arrived) {
            mine.merge(theirs);
        }
        self.behind.extend(other.behind);
        self.behind_uncounted += other.behind_uncounted;
        self.overtaken += other.overtaken;
        self.doubled += other.doubled;
        self.wrong += other.wrong;
        self.others += other.others;
    }
}

/// Compares what was acknowledged with what was read.
pub fn judge(sent: &Sent, read: &Read) -> Verified {
    let mut found = Verified {
        doubled: read.doubled,
        wrong: read.wrong,
        overtaken: read.overtaken,
        ..Verified::default()
    };
    let mut there = 0;
    // Where messages that nobody acknowledged were read before that was known, the fingerprints
    // of their queues cannot be compared.
    let mut clear = vec![true; sent.places()];
    for pair in 0..sent.pairs() {
        let (acknowledged, seen) = (sent.acknowledged_of(pair), read.pairs[pair].seen());
        let common = acknowledged.count_common(seen);
        there += common;
        found.missing += acknowledged.count() - common;
        let unacknowledged = seen.count() - common;
        found.unacknowledged += unacknowledged;
        clear[pair % sent.places()] &= read.sent.is_some() || unacknowledged == 0;
    }
    let behind = read.behind.iter();
    let misplaced = behind.filter(|&&(pair, sequence)| sent.is_acknowledged(pair, sequence));
    let misplaced = misplaced.count() as u64;
    found.misplaced = misplaced + read.behind_uncounted;
    // It was given up, which is no acknowledgement.
    found.overtaken += read.behind.len() as u64 - misplaced;
    for (place, clear) in clear.into_iter().enumerate() {
        let (sent, read) = (sent.queue(place), &read.queues[place]);
        if clear && sent.count == read.count && sent.fingerprint != read.fingerprint {
            found.misnumbered += 1;
        }
    }
    found.good = there.saturating_sub(found.misplaced);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::payload::{Payloads, SizeDistribution};

    const RUN: u32 = 77;

    /// Two producers send to three places in turn, with up to eight requests in flight.
    struct Model {
        sent: Sent,
        queues: Vec<Vec<Vec<u8>>>,
    }

    fn model() -> Model {
        let payloads = Payloads::new(&SizeDistribution::Fixed(100), 0.0);
        let mut sent = Sent::new(2, 3).expect("few");
        let mut queues = vec![Vec::new(); 3];
        let mut open = std::collections::VecDeque::new();
        for number in 0..300_u64 {
            let (producer, place) = ((number % 2) as u32, (number / 2 % 3) as u32);
            let (sequence, floor) = sent.begin(producer, place, 1);
            let stamp = Stamp {
                run: RUN,
                producer,
                place,
                sequence,
                floor,
                due: number,
            };
            let mut body = Vec::new();
            payloads.write(number, &stamp, true, &mut body);
            let queue: &mut Vec<Vec<u8>> = &mut queues[place as usize];
            open.push_back((producer, place, sequence, queue.len() as i64));
            queue.push(body);
            if open.len() > 8 {
                let (producer, place, sequence, offset) = open.pop_front().expect("open");
                sent.acknowledge(producer, place, sequence, 1, offset);
            }
        }
        for (producer, place, sequence, offset) in open {
            sent.acknowledge(producer, place, sequence, 1, offset);
        }
        Model { sent, queues }
    }

    fn note_all(model: &Model, mut read: Read) -> Read {
        for (place, queue) in model.queues.iter().enumerate() {
            for (offset, body) in queue.iter().enumerate() {
                read.note(place as u32, offset as i64, body);
            }
        }
        read
    }

    /// The same whether what was sent is known before or after it is read.
    fn verdict(model: &Model) -> Verified {
        let later = judge(&model.sent, &note_all(model, Read::new(RUN, 2, 3, true)));
        assert_eq!(verdict_after(model), later);
        later
    }

    /// What was sent is known before it is read.
    fn verdict_after(model: &Model) -> Verified {
        let sent = Arc::new(model.sent.clone());
        judge(&model.sent, &note_all(model, Read::of(RUN, sent, true)))
    }

    /// Puts a message that nobody acknowledged behind the others of queue 0.
    fn push_unacknowledged(model: &mut Model) {
        let (first, floor) = model.sent.begin(0, 0, 1);
        model.sent.give_up(0, 0, first, 1);
        let payloads = Payloads::new(&SizeDistribution::Fixed(100), 0.0);
        let stamp = Stamp {
            run: RUN,
            producer: 0,
            place: 0,
            sequence: first,
            floor,
            due: 0,
        };
        let mut body = Vec::new();
        payloads.write(0, &stamp, true, &mut body);
        model.queues[0].push(body);
    }

    #[test]
    fn a_broker_without_faults_passes() {
        let model = model();
        let found = verdict(&model);
        let good = Verified {
            good: 300,
            ..Verified::default()
        };
        assert_eq!(found, good);
        assert!(found.is_good());
        assert_eq!(model.sent.ends(), [100, 100, 100]);
    }

    #[test]
    fn a_lost_message_is_missing() {
        let mut model = model();
        model.queues[1].pop();
        let found = verdict(&model);
        assert_eq!((found.missing, found.good), (1, 299));
        assert!(!found.is_good());
    }

    #[test]
    fn a_message_stored_twice_is_doubled() {
        let mut model = model();
        let again = model.queues[0][40].clone();
        model.queues[0].push(again);
        let found = verdict(&model);
        assert_eq!((found.doubled, found.missing, found.good), (1, 0, 300));
        assert!(!found.is_good());
    }

    #[test]
    fn a_changed_byte_is_wrong_and_its_message_missing() {
        for at in [0, 5, 13, 22, 31, 60] {
            let mut model = model();
            model.queues[2][7][at] ^= 4;
            let found = verdict(&model);
            assert_eq!((found.wrong, found.missing), (1, 1), "byte {at}");
            assert!(!found.is_good());
        }
    }

    #[test]
    fn a_message_in_another_queue_is_wrong() {
        let mut model = model();
        let moved = model.queues[0].pop().expect("some");
        model.queues[1].push(moved);
        let found = verdict(&model);
        assert_eq!((found.wrong, found.missing), (1, 1));
    }

    #[test]
    fn a_message_behind_one_sent_after_its_acknowledgement_is_misplaced() {
        let mut model = model();
        let early = model.queues[0].remove(10);
        model.queues[0].insert(30, early);
        let found = verdict(&model);
        assert_eq!((found.misplaced, found.missing), (1, 0));
        assert!(!found.is_good());
    }

    #[test]
    fn messages_that_were_in_flight_together_may_overtake_each_other() {
        let mut model = model();
        // The same producer's, next to each other, sent before either was answered.
        model.queues[0].swap(10, 12);
        let found = verdict(&model);
        assert_eq!(found.misplaced, 0);
        assert_eq!(found.overtaken, 1);
    }

    #[test]
    fn an_offset_that_is_not_the_answered_one_is_found() {
        let mut model = model();
        // Different producers': no order is broken, but the answers named other places.
        model.queues[0].swap(10, 11);
        let found = verdict(&model);
        assert_eq!((found.misplaced, found.overtaken, found.missing), (0, 0, 0));
        assert_eq!(found.misnumbered, 1);
        assert!(!found.is_good());
    }

    #[test]
    fn what_nobody_acknowledged_is_neither_missing_nor_a_fault() {
        let mut model = model();
        let (first, _) = model.sent.begin(0, 0, 1);
        model.sent.give_up(0, 0, first, 1);
        let found = verdict(&model);
        assert!(found.is_good(), "{found:?}");
        push_unacknowledged(&mut model);
        let found = verdict(&model);
        assert!(found.is_good(), "{found:?}");
        assert_eq!(found.unacknowledged, 1);
        assert_eq!(model.sent.unknown(), 2);
    }

    #[test]
    fn an_offset_that_is_not_the_answered_one_is_found_beside_what_nobody_acknowledged() {
        let mut model = model();
        push_unacknowledged(&mut model);
        model.queues[0].swap(10, 11);
        let found = verdict_after(&model);
        assert_eq!((found.unacknowledged, found.good), (1, 300));
        assert_eq!(found.misnumbered, 1);
        assert!(!found.is_good());
    }

    /// Nothing was promised of it, but it stands where it should not.
    #[test]
    fn what_nobody_acknowledged_is_overtaken_when_it_stands_behind() {
        let mut model = model();
        push_unacknowledged(&mut model);
        push_unacknowledged(&mut model);
        let last = model.queues[0].len() - 1;
        model.queues[0].swap(last - 1, last);
        let found = verdict(&model);
        assert!(found.is_good(), "{found:?}");
        assert_eq!((found.unacknowledged, found.overtaken), (2, 1));
    }

    #[test]
    fn what_arrived_of_a_window_is_counted_once() {
        let mut model = model();
        let again = model.queues[0][40].clone();
        model.queues[0].push(again);
        model.queues[1].pop();
        let window = Window {
            from: 100,
            until: 300,
        };
        let mut read = Read::new(RUN, 2, 3, true);
        read.count_within(window);
        let mut read = note_all(&model, read);
        let arrived = read.arrived().expect("asked for");
        assert_eq!((arrived.messages, arrived.body_bytes), (199, 19_900));
    }

    #[test]
    fn messages_of_others_are_wrong_only_where_there_are_none() {
        let body = vec![1; 100];
        let mut alone = Read::new(RUN, 2, 3, true);
        alone.note(0, 0, &body);
        assert_eq!((alone.wrong, alone.others), (1, 0));
        let mut shared = Read::new(RUN, 2, 3, false);
        shared.note(0, 0, &body);
        shared.note(0, 1, b"short");
        assert_eq!((shared.wrong, shared.others), (0, 2));
    }

    #[test]
    fn ledgers_of_several_threads_add_up() {
        let model = model();
        let mut all = Read::new(RUN, 2, 3, true);
        for (place, queue) in model.queues.iter().enumerate() {
            let mut read = Read::new(RUN, 2, 3, true);
            for (offset, body) in queue.iter().enumerate() {
                read.note(place as u32, offset as i64, body);
            }
            all.merge(read);
        }
        assert!(judge(&model.sent, &all).is_good());
        let mut sent = Sent::new(2, 3).expect("few");
        sent.merge(&model.sent);
        assert!(judge(&sent, &all).is_good());
    }
}
