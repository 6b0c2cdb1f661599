//! Requests about how far groups are: 43, 208, 222, 343.
//!
//! Source of the rules: `AdminBrokerProcessor`, `ConsumerOffsetManager`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Control;
use super::answer::{Answer, error, no_group, no_topic};
use super::limits::STATS_TOPICS_MAX;
use super::offsets::OffsetSnapshot;
use super::settings::ControlSettings;
use crate::broker::peers::{OffsetInfo, Peers, QueueInfo};
use crate::wire::body::json::MessageQueue;
use crate::wire::body::stats::{
    ConsumeStats, OffsetWrapper, TopicList, reset_offset_body, to_body,
};
use crate::wire::body::topic::DataVersion;
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};

/// GET_CONSUME_STATS.
pub async fn stats(
    control: &RefCell<Control>,
    peers: &Peers,
    request: &Request,
    settings: &ControlSettings,
) -> Answer {
    let group = request.str("consumerGroup")?;
    let offsets = peers.group_offsets(group).await;
    let topics = topics_of(&control.borrow(), group, request, &offsets);
    let mut stats = ConsumeStats::default();
    for (topic, read_queues) in topics {
        let queues = peers.queues(&topic).await;
        for (queue_id, mut progress) in progress(&topic, read_queues, &queues, &offsets) {
            if progress.consumer_offset > 0 {
                let last = progress.consumer_offset - 1;
                let time = peers.store_time(&topic, queue_id, last).await;
                progress.last_timestamp = time.max(0);
            }
            let queue = MessageQueue {
                broker_name: settings.broker_name.clone(),
                queue_id,
                topic: topic.clone(),
            };
            stats.offset_table.insert(queue, progress);
        }
    }
    Ok(Response::body(stats.to_json()))
}

/// Topics with a committed offset (`whichTopicByConsumer`); a pull alone is none.
fn consumed_topics(offsets: &[OffsetInfo]) -> BTreeSet<&str> {
    let committed = offsets.iter().filter(|offset| offset.committed >= 0);
    committed.map(|offset| offset.topic.as_str()).collect()
}

/// The topics that the request is about, with the number of their queues for
/// reading (`getTopicsForCollectingConsumeStats`): those it lists; else the one it
/// names, or all with an offset, as far as the group's live members want them.
fn topics_of(
    control: &Control,
    group: &str,
    request: &Request,
    offsets: &[OffsetInfo],
) -> BTreeMap<String, i32> {
    let listed = request.get("topicList").unwrap_or_default();
    let listed: Vec<&str> = listed
        .split(';')
        .filter(|topic| !topic.is_empty())
        .collect();
    let named = request
        .get("topic")
        .filter(|topic| !topic.trim().is_empty());
    let topics: BTreeSet<&str> = if listed.is_empty() {
        let wanted: BTreeSet<&str> = match named {
            Some(topic) => BTreeSet::from([topic]),
            None => consumed_topics(offsets),
        };
        let live = control.clients.consumer_group(group);
        let live = live.filter(|live| live.subscriptions().next().is_some());
        let is_wanted = |topic: &&str| live.is_none_or(|live| live.subscription(topic).is_some());
        wanted.into_iter().filter(is_wanted).collect()
    } else {
        listed.into_iter().collect()
    };
    let known = topics
        .into_iter()
        .filter_map(|topic| control.topics.get(topic));
    let known = known.map(|config| (config.topic_name.clone(), config.read_queue_nums));
    known.take(STATS_TOPICS_MAX).collect()
}

fn progress(
    topic: &str,
    read_queues: i32,
    queues: &[QueueInfo],
    offsets: &[OffsetInfo],
) -> Vec<(i32, OffsetWrapper)> {
    let max: HashMap<i32, i64> = queues
        .iter()
        .map(|queue| (queue.queue, queue.max))
        .collect();
    let offsets = offsets.iter().filter(|offset| offset.topic == topic);
    let offsets: HashMap<i32, &OffsetInfo> = offsets.map(|offset| (offset.queue, offset)).collect();
    let progress = |queue_id: i32| {
        let offset = offsets.get(&queue_id);
        let consumer_offset = offset.map_or(0, |offset| offset.committed.max(0));
        OffsetWrapper {
            broker_offset: max.get(&queue_id).map_or(0, |&max| max.max(0)),
            consumer_offset,
            last_timestamp: 0,
            pull_offset: offset.map_or(0, |offset| offset.pulled.max(consumer_offset)),
        }
    };
    (0..read_queues)
        .map(|queue_id| (queue_id, progress(queue_id)))
        .collect()
}

/// QUERY_TOPICS_BY_CONSUMER.
pub async fn topics_by_consumer(
    peers: &Peers,
    request: &Request,
    settings: &ControlSettings,
) -> Answer {
    let offsets = peers.group_offsets(request.str("group")?).await;
    let topics = consumed_topics(&offsets);
    let answer = TopicList {
        broker_addr: Some(&settings.broker_addr),
        topic_list: topics.into_iter().collect(),
    };
    Ok(Response::body(to_body(&answer)))
}

/// GET_ALL_CONSUMER_OFFSET: of all groups that there are.
pub async fn all_offsets(control: &RefCell<Control>, peers: &Peers, now_ms: u64) -> Answer {
    let groups: Vec<String> = {
        let control = control.borrow();
        control
            .groups
            .iter()
            .map(|(group, _)| group.to_owned())
            .collect()
    };
    let mut all = OffsetSnapshot::default();
    for group in groups {
        for offset in peers.group_offsets(&group).await {
            if offset.committed >= 0 {
                all.insert(&group, &offset.topic, offset.queue, offset.committed);
            }
        }
    }
    let mut version = DataVersion::default();
    version.next(now_ms);
    Ok(Response::body(all.to_json(version)))
}

/// What a request to reset offsets asks for.
#[derive(Debug, PartialEq, Eq)]
struct Reset<'a> {
    topic: &'a str,
    group: &'a str,
    /// The queues, with the offset to set where the request names it.
    queues: Vec<(i32, Option<i64>)>,
    /// Where to go back to, in ms since 1970; negative: the end.
    timestamp: i64,
}

fn parse_reset<'a>(control: &Control, request: &'a Request) -> Result<Reset<'a>, Response> {
    let (topic, group) = (request.str("topic")?, request.str("group")?);
    let timestamp: i64 = request.int("timestamp")?;
    let queue: i32 = request.int_or("queueId", -1)?;
    let offset: i64 = request.int_or("offset", -1)?;
    let Some(config) = control.topics.get(topic) else {
        return no_topic(topic);
    };
    if control.groups.get(group).is_none() {
        return no_group(group);
    }
    let queues = if queue >= config.read_queue_nums {
        let queues = config.read_queue_nums;
        return error(
            response::SYSTEM_ERROR,
            format!("queueId {queue} is not one of the topic's {queues} queues"),
        );
    } else if queue >= 0 {
        vec![(queue, (offset >= 0).then_some(offset))]
    } else {
        (0..config.read_queue_nums)
            .map(|queue| (queue, None))
            .collect()
    };
    if queues.is_empty() {
        return error(response::SYSTEM_ERROR, "No queues to reset.");
    }
    Ok(Reset {
        topic,
        group,
        queues,
        timestamp,
    })
}

/// INVOKE_BROKER_TO_RESET_OFFSET (`resetOffsetInner`). Members of the group are
/// told by their next pull.
pub async fn reset(
    control: &RefCell<Control>,
    peers: &Peers,
    request: &Request,
    settings: &ControlSettings,
) -> Answer {
    let reset = parse_reset(&control.borrow(), request)?;
    let infos = peers.queues(reset.topic).await;
    let mut offsets = BTreeMap::new();
    for (queue_id, offset) in reset.queues {
        let info = infos.iter().find(|info| info.queue == queue_id);
        let (min, max) = info.map_or((0, 0), |info| (info.min, info.max));
        let offset = match offset {
            Some(offset) if offset < min || offset > max + 1 => {
                let remark =
                    format!("Target offset {offset} not in consume queue range [{min}-{max}]");
                return error(response::SYSTEM_ERROR, remark);
            }
            Some(offset) => offset,
            None if reset.timestamp < 0 => max,
            None => {
                peers
                    .offset_by_time(reset.topic, queue_id, reset.timestamp)
                    .await
            }
        };
        let queue = MessageQueue {
            broker_name: settings.broker_name.clone(),
            queue_id,
            topic: reset.topic.to_owned(),
        };
        offsets.insert(queue, offset);
    }
    for (queue, &offset) in &offsets {
        peers
            .set_offset(reset.group, reset.topic, queue.queue_id, offset, true)
            .await;
    }
    tracing::info!(
        "offsets of group {} in topic {} reset in {} queues",
        reset.group,
        reset.topic,
        offsets.len()
    );
    Ok(Response::body(reset_offset_body(&offsets)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::control::clients::Client;
    use crate::shard::{ConnId, ShardId};
    use crate::wire::body::heartbeat::{ConsumerData, HeartbeatData, SubscriptionData};
    use crate::wire::body::topic::TopicConfig;

    const NOW: u64 = 1_700_000_000_000;

    fn control(live: &[&str]) -> Control {
        let settings = ControlSettings::default();
        let mut control = Control::new(&settings);
        for topic in ["T", "U"] {
            let config = TopicConfig::new(topic, 2, 6);
            control.topics.update(config, &settings, NOW).unwrap();
        }
        let _ = control.ensure_group("g", &settings, NOW);
        let subscription = |topic: &&str| SubscriptionData::new(topic, "*", "", 1);
        let data = HeartbeatData {
            client_id: "c".into(),
            consumer_data_set: vec![ConsumerData {
                group_name: "g".into(),
                subscription_data_set: live.iter().map(subscription).collect(),
                ..ConsumerData::default()
            }],
            ..HeartbeatData::default()
        };
        let client = Client {
            conn: ConnId {
                shard: ShardId(0),
                slot: 0,
                generation: 0,
            },
            addr: ([127, 0, 0, 1], 1).into(),
            client_id: "c".into(),
            language: 0,
            version: 0,
            last_update_ms: NOW,
        };
        if !live.is_empty() {
            let _ = control.heartbeat(&data, client, &settings);
        }
        control
    }

    fn offset(topic: &str, queue: i32, committed: i64, pulled: i64) -> OffsetInfo {
        OffsetInfo {
            topic: topic.into(),
            queue,
            committed,
            pulled,
        }
    }

    #[test]
    fn topics_come_from_the_offsets_as_far_as_live_members_want_them() {
        let offsets = ["T", "U", "gone"].map(|topic| offset(topic, 0, 1, 1));
        let ask = |live: &[&str], request: Request| -> String {
            let topics = topics_of(&control(live), "g", &request, &offsets);
            topics.into_keys().collect::<Vec<_>>().join(",")
        };
        let request = || Request::new(208);
        assert_eq!(ask(&[], request()), "T,U");
        assert_eq!(ask(&["U"], request()), "U");
        assert_eq!(ask(&["U"], request().with("topic", "T")), "");
        assert_eq!(ask(&[], request().with("topic", "T")), "T");
        assert_eq!(ask(&["U"], request().with("topicList", "T;U;;none")), "T,U");
    }

    #[test]
    fn progress_is_told_of_every_queue() {
        let queues = [QueueInfo {
            queue: 1,
            min: 0,
            max: 50,
            last_timestamp: 0,
        }];
        let offsets = [
            offset("T", 1, 30, 40),
            offset("U", 0, 7, 7),
            offset("T", 9, 7, 7),
        ];
        let progress = progress("T", 2, &queues, &offsets);
        assert_eq!(progress[0], (0, OffsetWrapper::default()));
        let expected = OffsetWrapper {
            broker_offset: 50,
            consumer_offset: 30,
            last_timestamp: 0,
            pull_offset: 40,
        };
        assert_eq!(progress[1], (1, expected));
    }

    #[test]
    fn a_reset_names_what_must_exist() {
        let control = control(&[]);
        let request = |topic: &str, group: &str| {
            let request = Request::new(222).with("topic", topic).with("group", group);
            request.with("timestamp", 5).with("isForce", true)
        };
        let code = |request: &Request| parse_reset(&control, request).unwrap_err().code;
        assert_eq!(code(&request("none", "g")), response::TOPIC_NOT_EXIST);
        assert_eq!(
            code(&request("T", "none")),
            response::SUBSCRIPTION_GROUP_NOT_EXIST
        );
        assert_eq!(
            code(&request("T", "g").with("queueId", 2)),
            response::SYSTEM_ERROR
        );
        assert_eq!(
            code(&Request::new(222).with("topic", "T").with("group", "g")),
            1
        );

        let all = request("T", "g");
        assert_eq!(
            parse_reset(&control, &all).unwrap().queues,
            [(0, None), (1, None)]
        );
        let one = request("T", "g").with("queueId", 1).with("offset", 9);
        assert_eq!(parse_reset(&control, &one).unwrap().queues, [(1, Some(9))]);
        let unset = request("T", "g").with("queueId", 1).with("offset", -1);
        assert_eq!(parse_reset(&control, &unset).unwrap().queues, [(1, None)]);
    }
}
