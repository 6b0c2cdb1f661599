//! All queues of a topic are read side by side, without a group and without a trace at the broker.

use crate::cli::admin::{Context, fits};
use crate::cli::show::Failure;
use ringmq::client::admin::{AdminError, StoredMessage, TOOLS_GROUP};

/// Messages that one pull asks for.
const PULL_MESSAGES: i32 = 32;

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At the oldest message.
    First,
    /// Behind the newest message.
    Last,
    /// At what was stored then, ms since 1970.
    Time(i64),
    /// At this offset of every queue.
    Offset(i64),
}

/// One queue and how far it is read.
#[derive(Debug)]
struct Queue {
    id: i32,
    next: i64,
    /// Where it ends when reading is not to go on.
    end: i64,
}

/// The queues of one broker.
#[derive(Debug)]
struct Part {
    broker: String,
    address: String,
    queues: Vec<Queue>,
}

/// A topic that is read.
pub struct Tail {
    topic: String,
    expression: String,
    parts: Vec<Part>,
}

impl Tail {
    /// Finds the queues, or takes the one that is given, and where to begin in each.
    ///
    /// # Errors
    /// The topic is not there, or a broker does not answer.
    pub fn new(
        context: &mut Context,
        topic: &str,
        only: Option<&(String, i32)>,
        expression: &str,
        from: From,
    ) -> Result<Tail, Failure> {
        let route = context.admin.route(topic)?;
        let mut parts = Vec::new();
        for (broker, address) in context.admin.brokers_of_topic(topic)? {
            let data = route.queue_datas.iter();
            let mut data = data.filter(|data| data.broker_name == broker && data.perm & 4 != 0);
            let count = data.next().map_or(0, |data| data.read_queue_nums);
            let mut ids: Vec<i32> = (0..count).collect();
            if let Some((name, id)) = only {
                ids.retain(|have| have == id && *name == broker);
            }
            let mut queues = Vec::new();
            for id in ids {
                let admin = &mut context.admin;
                let end = admin.max_offset(&address, topic, id)?;
                let next = match from {
                    From::First => admin.min_offset(&address, topic, id)?,
                    From::Last => end,
                    From::Time(time) => admin.search_offset(&address, topic, id, time)?,
                    From::Offset(offset) => offset,
                };
                queues.push(Queue { id, next, end });
            }
            if !queues.is_empty() {
                parts.push(Part {
                    broker,
                    address,
                    queues,
                });
            }
        }
        match (parts.is_empty(), only) {
            (true, Some((broker, id))) => Err(Failure::not_found(format!(
                "topic {topic:?} has no queue {id} on broker {broker:?} that can be read"
            ))
            .hint(format!(
                "`ringmq admin topicRoute -t {topic}` shows its queues"
            ))),
            (true, None) => Err(Failure::not_found(format!(
                "topic {topic:?} has no queue that can be read"
            ))),
            _ => Ok(Tail {
                topic: topic.to_owned(),
                expression: expression.to_owned(),
                parts,
            }),
        }
    }

    /// One pull of every queue that is not at its end. Messages of one queue are in their order.
    /// Without `follow` what came after the beginning is left out. `None`: all is read.
    ///
    /// # Errors
    /// A broker does not answer, or refuses.
    pub fn round(
        &mut self,
        context: &mut Context,
        follow: bool,
    ) -> Result<Option<Vec<StoredMessage>>, Failure> {
        let mut found = Vec::new();
        let mut open = false;
        for part in &mut self.parts {
            let mut queues: Vec<&mut Queue> = part
                .queues
                .iter_mut()
                .filter(|queue| follow || queue.next < queue.end)
                .collect();
            if queues.is_empty() {
                continue;
            }
            open = true;
            let places: Vec<(i32, i64)> =
                queues.iter().map(|queue| (queue.id, queue.next)).collect();
            let pulled = context
                .admin
                .pull_all(
                    &part.address,
                    TOOLS_GROUP,
                    &self.topic,
                    &places,
                    PULL_MESSAGES,
                    &self.expression,
                )
                .map_err(|error: AdminError| error.broker(&part.broker))?;
            for (queue, pulled) in queues.iter_mut().zip(pulled) {
                let before = queue.next;
                for message in pulled.messages {
                    // What a broker sends twice is shown once.
                    let is_new = message.queue_offset >= queue.next;
                    if is_new && (follow || message.queue_offset < queue.end) {
                        queue.next = message.queue_offset + 1;
                        if fits(&message, &self.expression) {
                            found.push(message);
                        }
                    }
                }
                queue.next = queue.next.max(pulled.next);
                // A queue that does not move on is over, unless it is followed.
                if queue.next == before {
                    queue.end = before;
                }
            }
        }
        Ok(open.then_some(found))
    }
}
