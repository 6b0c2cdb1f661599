//! Messages are found: by id, by key, by their place, by their trace.

use super::message_view::{message_document, messages_document};
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table, exit};
use clap::Args;
use ringmq::client::admin::{AdminError, Broker, StoredMessage, TOOLS_GROUP};
use ringmq::wire::ids;
use ringmq::wire::names;

/// The whole of time.
const ALWAYS: (i64, i64) = (0, i64::MAX);

/// Most messages with one id of a sender that are looked for; brokers give no more.
const SAME_ID_MAX: i32 = 32;

/// Which member of a group a found message is given to.
#[derive(Debug, Args)]
pub struct GiveTo {
    /// Gives the message to a member of this group, right now.
    #[arg(short = 'g', long = "group", aliases = ["consumerGroup", "groupName"], requires = "client_id")]
    group: Option<String>,

    /// The member.
    #[arg(short = 'd', long, requires = "group")]
    client_id: Option<String>,
}

impl GiveTo {
    /// Gives it, or shows it.
    fn finish(&self, context: &mut Context, found: &Found) -> Outcome {
        let (Some(group), Some(client)) = (&self.group, &self.client_id) else {
            return Ok(found.document(context));
        };
        let Found { address, message } = found;
        let result = context
            .admin
            .consume_directly(address, group, client, message)?;
        Ok(Document::new()
            .field(
                "msgId",
                "Message id",
                Cell::of(message.unique_key(), Cell::text),
            )
            .field("clientId", "Client", Cell::text(client))
            .field(
                "consumeResult",
                "Result",
                Cell::of(result["consumeResult"].as_str(), Cell::text),
            )
            .field(
                "remark",
                "Remark",
                Cell::of(result["remark"].as_str(), Cell::text),
            )
            .field(
                "spentTimeMs",
                "Took",
                Cell::of(result["spentTimeMills"].as_i64(), Cell::Span),
            ))
    }
}

/// A message, and the address of the broker that gave it. What a message itself says of where it is
/// stored is asked nothing: anyone may have written it.
struct Found {
    address: String,
    message: StoredMessage,
}

impl Found {
    fn document(&self, context: &mut Context) -> Document {
        let (table, faults) = self.passed(context);
        message_document(&self.message).table(table).faults(faults)
    }

    /// Which groups have passed it.
    fn passed(&self, context: &mut Context) -> (Table, Vec<String>) {
        let Found { address, message } = self;
        let columns = [
            ("group", "GROUP"),
            ("passed", "HAS PASSED IT"),
            ("behind", "MESSAGES BEFORE IT"),
        ];
        let mut table = Table::new("groups", &columns, "no group reads the topic");
        let mut faults = Vec::new();
        match context.admin.groups_of_topic(address, &message.topic) {
            Ok(groups) => {
                for group in groups {
                    let stats = context
                        .admin
                        .consume_stats(address, &group, Some(&message.topic));
                    match stats {
                        Ok(stats) => {
                            let mut queues = stats.offset_table.iter();
                            let at = queues.find(|(queue, _)| {
                                queue.queue_id == message.queue_id && queue.topic == message.topic
                            });
                            let behind = at.map(|(_, at)| {
                                message.queue_offset.saturating_sub(at.consumer_offset)
                            });
                            table.row([
                                Cell::Text(group),
                                Cell::of(behind, |behind| Cell::Flag(behind < 0)),
                                Cell::of(behind.filter(|&behind| behind >= 0), Cell::Count),
                            ]);
                        }
                        Err(error) => faults.push(error.to_string()),
                    }
                }
            }
            Err(error) => faults.push(error.to_string()),
        }
        (table, faults)
    }
}

/// `queryMsgById`.
#[derive(Debug, Args)]
pub struct QueryMsgById {
    /// The id: an offset message id, or the one that the sender gave (then with -t).
    #[arg(short = 'i', long)]
    msg_id: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: Option<String>,

    #[command(flatten)]
    give_to: GiveTo,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl QueryMsgById {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let found = self.find(context)?;
        self.give_to.finish(context, &found)
    }

    fn find(&self, context: &mut Context) -> Result<Found, Failure> {
        let topic = self.topic.as_deref();
        let place = ids::parse_offset_id(&self.msg_id).filter(|(host, _)| host.port() > 0);
        let direct = match place {
            Some((host, position)) => {
                let found = at_place(context, &host.to_string(), topic, position);
                Some(match found {
                    Ok(found) => return Ok(found),
                    Err(failure) => failure,
                })
            }
            None => None,
        };
        match (direct, topic) {
            // Both kinds of ids look alike.
            (direct, Some(topic)) => {
                match by_unique_key(context, topic, &self.msg_id, self.cluster.as_deref()) {
                    Ok(mut found) => Ok(found.swap_remove(0)),
                    Err(failure) => Err(match direct {
                        Some(direct) if direct.code != exit::NOT_FOUND => direct,
                        Some(direct) => failure.hint(format!(
                            "as an offset message id it leads nowhere: {}",
                            direct.message
                        )),
                        None => failure,
                    }),
                }
            }
            (Some(failure), None) => Err(failure),
            (None, None) => Err(Failure::usage(format!(
                "{:?} is no offset message id",
                self.msg_id
            ))
            .hint("with -t TOPIC it is looked for as the id that its sender gave")),
        }
    }
}

/// The message at a position of a broker that nameservers know: an id can be made to name anyone.
fn at_place(
    context: &mut Context,
    address: &str,
    topic: Option<&str>,
    position: i64,
) -> Result<Found, Failure> {
    context.check_known(address, topic)?;
    let topic = topic.unwrap_or_default();
    let message = context.admin.message_at(address, topic, position)?;
    Ok(Found {
        address: address.to_owned(),
        message,
    })
}

/// Messages with an id of their sender; at least one.
fn by_unique_key(
    context: &mut Context,
    topic: &str,
    id: &str,
    cluster: Option<&str>,
) -> Result<Vec<Found>, Failure> {
    let target = Target {
        broker: None,
        cluster: cluster.map(str::to_owned),
    };
    let brokers = context.brokers_of_topic(topic, &target)?;
    let found = by_key(context, &brokers, (topic, id), SAME_ID_MAX, ALWAYS, true)?;
    match found.0.is_empty() {
        true => Err(
            Failure::not_found(format!("topic {topic:?} has no message with id {id:?}"))
                .hint("it may be older than what is kept, or in another topic"),
        ),
        false => Ok(found.0),
    }
}

/// Messages with a key on some brokers, oldest first.
fn by_key(
    context: &mut Context,
    brokers: &[Broker],
    (topic, key): (&str, &str),
    max: i32,
    time: (i64, i64),
    unique: bool,
) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let (found, faults) = context.each(brokers, |admin, broker| {
        admin.messages_by_key(&broker.address, topic, key, max, time, unique)
    })?;
    let of_broker = |(broker, messages): (Broker, Vec<StoredMessage>)| {
        messages.into_iter().map(move |message| Found {
            address: broker.address.clone(),
            message,
        })
    };
    let mut found: Vec<Found> = found.into_iter().flat_map(of_broker).collect();
    found.sort_by_key(|Found { message, .. }| {
        (message.store_time, message.queue_id, message.queue_offset)
    });
    Ok((found, faults))
}

fn messages(found: Vec<Found>) -> Vec<StoredMessage> {
    found.into_iter().map(|found| found.message).collect()
}

/// `queryMsgByKey`.
#[derive(Debug, Args)]
pub struct QueryMsgByKey {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// The key.
    #[arg(short = 'k', long)]
    msg_key: String,

    /// Stored at this time or later.
    #[arg(short = 'b', long, value_parser = crate::cli::show::parse_time, default_value = "0",
          allow_hyphen_values = true, value_name = "TIME")]
    begin_timestamp: i64,

    /// Stored at this time or earlier [default: always].
    #[arg(short = 'e', long, value_parser = crate::cli::show::parse_time,
          allow_hyphen_values = true, value_name = "TIME")]
    end_timestamp: Option<i64>,

    /// Most messages that each broker gives.
    #[arg(short = 'm', long, default_value_t = 64, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    max_num: i32,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl QueryMsgByKey {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: None,
            cluster: self.cluster.clone(),
        };
        let brokers = context.brokers_of_topic(&self.topic, &target)?;
        let time = (self.begin_timestamp, self.end_timestamp.unwrap_or(i64::MAX));
        let names = (self.topic.as_str(), self.msg_key.as_str());
        let (found, faults) = by_key(context, &brokers, names, self.max_num, time, false)?;
        if found.is_empty() && faults.is_empty() {
            return Err(Failure::not_found(format!(
                "topic {:?} has no message with key {:?} of that time",
                self.topic, self.msg_key
            )));
        }
        Ok(messages_document(&messages(found), true).faults(faults))
    }
}

/// `queryMsgByUniqueKey`.
#[derive(Debug, Args)]
pub struct QueryMsgByUniqueKey {
    /// The id that the sender gave.
    #[arg(short = 'i', long)]
    msg_id: String,

    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    #[command(flatten)]
    give_to: GiveTo,

    /// All messages with that id, up to 32.
    #[arg(short = 'a', long)]
    show_all: bool,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl QueryMsgByUniqueKey {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let cluster = self.cluster.as_deref();
        let mut found = by_unique_key(context, &self.topic, &self.msg_id, cluster)?;
        if self.show_all {
            return Ok(messages_document(&messages(found), true));
        }
        self.give_to.finish(context, &found.swap_remove(0))
    }
}

/// `queryMsgByOffset`.
#[derive(Debug, Args)]
pub struct QueryMsgByOffset {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// The broker, by name or HOST:PORT.
    #[arg(short = 'b', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: String,

    /// The queue.
    #[arg(short = 'i', long)]
    queue_id: i32,

    /// The offset.
    #[arg(short = 'o', long)]
    offset: i64,
}

impl QueryMsgByOffset {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: Some(self.broker.clone()),
            cluster: None,
        };
        let broker = context.brokers_of_topic(&self.topic, &target)?.remove(0);
        let queue = (self.topic.as_str(), self.queue_id);
        let pull = context
            .admin
            .pull(&broker.address, TOOLS_GROUP, queue, self.offset, 1, "*")
            .map_err(|error: AdminError| error.broker(&broker.name))?;
        let message = pull.messages.into_iter().next();
        match message.filter(|message| message.queue_offset == self.offset) {
            Some(message) => Ok(Found {
                address: broker.address,
                message,
            }
            .document(context)),
            None => Err(Failure::not_found(format!(
                "queue {} of {:?} on {} has no message at offset {}",
                self.queue_id, self.topic, broker.name, self.offset
            ))
            .hint(format!(
                "it has offsets from {} below {}",
                pull.min, pull.max
            ))),
        }
    }
}

/// `queryMsgTraceById`.
#[derive(Debug, Args)]
pub struct QueryMsgTraceById {
    /// The id that the sender gave.
    #[arg(short = 'i', long)]
    msg_id: String,

    /// The topic that traces are sent to.
    #[arg(short = 't', long, default_value = names::TRACE_TOPIC)]
    trace_topic: String,

    /// Stored at this time or later.
    #[arg(short = 'b', long, value_parser = crate::cli::show::parse_time, default_value = "0",
          allow_hyphen_values = true, value_name = "TIME")]
    begin_timestamp: i64,

    /// Stored at this time or earlier [default: always].
    #[arg(short = 'e', long, value_parser = crate::cli::show::parse_time,
          allow_hyphen_values = true, value_name = "TIME")]
    end_timestamp: Option<i64>,

    /// Most traces that each broker gives.
    #[arg(short = 'c', long, default_value_t = 64, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    max_num: i32,
}

impl QueryMsgTraceById {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers_of_topic(&self.trace_topic, &Target::default())?;
        let time = (self.begin_timestamp, self.end_timestamp.unwrap_or(i64::MAX));
        let names = (self.trace_topic.as_str(), self.msg_id.as_str());
        let (found, faults) = by_key(context, &brokers, names, self.max_num, time, false)?;
        let columns = [
            ("type", "WHAT"),
            ("time", "WHEN"),
            ("group", "GROUP"),
            ("clientHost", "CLIENT"),
            ("costMs", "TOOK"),
            ("status", "STATUS"),
        ];
        let mut table = Table::new("traces", &columns, "no trace");
        for Found { message, .. } in &found {
            for trace in traces_of(&message.body, &self.msg_id) {
                table.row([
                    Cell::Text(trace.kind),
                    Cell::Time(trace.time),
                    Cell::Text(trace.group),
                    Cell::text(&message.born_host),
                    Cell::Span(trace.cost),
                    match trace.success {
                        true => Cell::Good("success".to_owned()),
                        false => Cell::Bad("failed".to_owned()),
                    },
                ]);
            }
        }
        if table.is_empty() && faults.is_empty() {
            return Err(Failure::not_found(format!(
                "topic {:?} has no trace of message {:?}",
                self.trace_topic, self.msg_id
            ))
            .hint(
                "clients send traces where they are told to; the topic is made with \
                   traceTopicEnable=true or by hand",
            ));
        }
        Ok(Document::new()
            .field("msgId", "Message id", Cell::text(&self.msg_id))
            .table(table)
            .faults(faults))
    }
}

/// One step in the life of a message, as a client has written it down.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    kind: String,
    time: i64,
    group: String,
    cost: i64,
    success: bool,
}

/// The steps of one message in the body of a trace message (`TraceDataEncoder`): records end with
/// byte 2, their fields are parted by byte 1.
fn traces_of(body: &[u8], id: &str) -> Vec<Trace> {
    let text = String::from_utf8_lossy(body);
    let mut found = Vec::new();
    for record in text.split('\u{2}') {
        let fields: Vec<&str> = record.split('\u{1}').collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        let number = |at: usize| field(at).parse().unwrap_or(0);
        let trace = match field(0) {
            "Pub" if field(5) == id => Trace {
                kind: "Pub".to_owned(),
                time: number(1),
                group: field(3).to_owned(),
                cost: number(10),
                // Newer clients have the offset message id in between.
                success: field(fields.len().min(14).saturating_sub(1)) == "true",
            },
            "SubBefore" if field(5) == id => Trace {
                kind: "SubBefore".to_owned(),
                time: number(1),
                group: field(3).to_owned(),
                cost: 0,
                success: true,
            },
            "SubAfter" if field(2) == id => Trace {
                kind: "SubAfter".to_owned(),
                time: number(7),
                group: field(8).to_owned(),
                cost: number(3),
                success: field(4) == "true",
            },
            _ => continue,
        };
        found.push(trace);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_read_field_by_field() {
        let body = [
            "Pub\u{1}1700\u{1}R\u{1}pg\u{1}T\u{1}ID\u{1}tag\u{1}key\u{1}h:1\u{1}5\u{1}7\u{1}0\u{1}OFF\u{1}true\u{1}h",
            "SubBefore\u{1}1701\u{1}R\u{1}cg\u{1}REQ\u{1}ID\u{1}0\u{1}k",
            "SubAfter\u{1}REQ\u{1}ID\u{1}9\u{1}false\u{1}k\u{1}1\u{1}1702\u{1}cg",
            "Pub\u{1}1\u{1}R\u{1}pg\u{1}T\u{1}OTHER",
            "garbage",
        ]
        .join("\u{2}");
        let traces = traces_of(body.as_bytes(), "ID");
        let short: Vec<_> = traces
            .iter()
            .map(|trace| {
                (
                    trace.kind.as_str(),
                    trace.time,
                    trace.group.as_str(),
                    trace.cost,
                    trace.success,
                )
            })
            .collect();
        assert_eq!(
            short,
            [
                ("Pub", 1700, "pg", 7, true),
                ("SubBefore", 1701, "cg", 0, true),
                ("SubAfter", 1702, "cg", 9, false),
            ]
        );
    }
}
