//! Requests about what is in the queues: 33, 321.
//!
//! Source of the rules: `QueryMessageProcessor`, `AdminBrokerProcessor`.

use std::cell::RefCell;
use std::sync::Arc;

use super::Control;
use super::answer::{Answer, error, shown};
use super::limits::QUEUE_ENTRIES_MAX;
use crate::broker::peers::{Peers, QueueEntry};
use crate::wire::body::heartbeat::SubscriptionData;
use crate::wire::body::stats::{ConsumeQueueAnswer, ConsumeQueueData, to_body};
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};

/// VIEW_MESSAGE_BY_ID. The offset is looked up here and nowhere else: no address
/// that an id may hold is ever connected to.
pub async fn view_message(peers: &Peers, request: &Request) -> Answer {
    let offset: i64 = request.int("offset")?;
    let record = if offset < 0 {
        None
    } else {
        peers.record(offset).await
    };
    match record {
        Some(record) => Ok(Response::body(record)),
        None => {
            let remark = format!("can not find message by the offset, {offset}");
            error(response::SYSTEM_ERROR, remark)
        }
    }
}

/// QUERY_CONSUME_QUEUE.
pub async fn consume_queue(control: &RefCell<Control>, peers: &Peers, request: &Request) -> Answer {
    let topic = request.str("topic")?;
    let queue: i32 = request.int("queueId")?;
    let index: i64 = request.int("index")?;
    let count: i32 = request.int("count")?;
    let queues = peers.queues(topic).await;
    let Some(info) = queues.iter().find(|info| info.queue == queue) else {
        let remark = format!("{queue}@{} is not exist!", shown(topic));
        return error(response::SYSTEM_ERROR, remark);
    };
    let count = usize::try_from(count).unwrap_or(0).min(QUEUE_ENTRIES_MAX);
    let entries = peers
        .queue_entries(topic, queue, index.max(info.min), count)
        .await;
    let group = request.get("consumerGroup");
    let wanted = group.and_then(|group| subscription(&control.borrow(), group, topic));
    let answer = ConsumeQueueAnswer {
        filter_data: match (group, &wanted) {
            (Some(group), None) => {
                Some(format!("{}@{} is not online!", shown(group), shown(topic)))
            }
            _ => None,
        },
        max_queue_index: info.max,
        min_queue_index: info.min,
        queue_data: entries.iter().map(entry).collect(),
        subscription_data: wanted.as_deref(),
    };
    Ok(Response::body(to_body(&answer)))
}

fn subscription(control: &Control, group: &str, topic: &str) -> Option<Arc<SubscriptionData>> {
    let live = control.clients.consumer_group(group)?;
    live.subscription(topic).map(Arc::clone)
}

fn entry(entry: &QueueEntry) -> ConsumeQueueData {
    ConsumeQueueData {
        eval: false,
        physic_offset: entry.physical,
        physic_size: entry.size,
        tags_code: entry.tags_code,
    }
}
