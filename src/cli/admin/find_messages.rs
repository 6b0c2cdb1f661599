//! Messages are found: by id, by key, by their place, by their trace.

use super::message_view::{message_document, messages_document};
use super::messages::{sent_document, writable};
use super::{Context, Target};
use crate::cli::show::{Cell, Charset, Document, Failure, Outcome, Table, exit};
use clap::Args;
use ringmq::client::admin::{AdminError, Broker, Outgoing, StoredMessage, TOOLS_GROUP};
use ringmq::client::message::RESERVED;
use ringmq::wire::ids;
use ringmq::wire::properties::name;

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
    fn finish(&self, context: &mut Context, found: &Found, charset: Charset) -> Outcome {
        let (Some(group), Some(client)) = (&self.group, &self.client_id) else {
            return Ok(found.document(context, charset));
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
pub(super) struct Found {
    address: String,
    /// The message.
    pub message: StoredMessage,
}

impl Found {
    fn document(&self, context: &mut Context, charset: Charset) -> Document {
        let (table, faults) = self.passed(context);
        message_document(&self.message, charset)
            .table(table)
            .faults(faults)
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

    /// Sends the message once more, with its id, to a queue that its topic has now.
    #[arg(short = 's', long, default_value_t = false, action = clap::ArgAction::Set,
          value_name = "true|false", conflicts_with = "group")]
    send_message: bool,

    /// The sender's unit, where clients are told apart by theirs; kept for scripts.
    #[arg(short = 'u', long, requires = "send_message", hide = true)]
    unit_name: Option<String>,

    /// The encoding of the body: UTF-8, GBK, ...
    #[arg(short = 'f', long, value_name = "CHARSET")]
    body_format: Option<Charset>,

    /// Only brokers of this cluster.
    #[arg(short = 'c', long)]
    cluster: Option<String>,
}

impl QueryMsgById {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let (found, faults) = self.find(context)?;
        let document = match self.send_message {
            true => send_again(context, &found.message)?,
            false => {
                let charset = self.body_format.unwrap_or_default();
                self.give_to.finish(context, &found, charset)?
            }
        };
        Ok(document.faults(faults))
    }

    /// The message, and which brokers could not say whether they have it.
    fn find(&self, context: &mut Context) -> Result<(Found, Vec<String>), Failure> {
        let topic = self.topic.as_deref();
        let place = ids::parse_offset_id(&self.msg_id).filter(|(host, _)| host.port() > 0);
        let direct = match place {
            Some((host, position)) => {
                let found = at_place(context, &host.to_string(), topic, position);
                Some(match found {
                    Ok(found) => return Ok((found, Vec::new())),
                    Err(failure) => failure,
                })
            }
            None => None,
        };
        match (direct, topic) {
            // Both kinds of ids look alike.
            (direct, Some(topic)) => {
                match by_unique_key(context, topic, &self.msg_id, self.cluster.as_deref()) {
                    Ok((mut found, faults)) => Ok((found.swap_remove(0), faults)),
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

/// Sends a message once more. It keeps the id of its sender; what brokers have noted in it, and
/// what has it delayed or taken for half of a transaction, stays behind.
fn send_again(context: &mut Context, message: &StoredMessage) -> Outcome {
    const KEPT: [&str; 3] = [name::KEYS, name::TAGS, name::UNIQ_KEY];
    let broker = writable(context, &message.topic, None)?;
    let pairs = message.properties.iter();
    let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
    let properties = pairs
        .filter(|(name, _)| KEPT.contains(name) || !RESERVED.contains(name))
        .collect();
    let outgoing = Outgoing {
        topic: &message.topic,
        body: &message.body,
        properties,
        flag: message.flag,
        ..Outgoing::default()
    };
    let sent = context.admin.send(&broker.address, &outgoing);
    let receipt = sent.map_err(|error| error.broker(&broker.name))?;
    Ok(sent_document(&message.topic, &broker, receipt).field(
        "originalMsgId",
        "Sent again",
        Cell::text(&message.message_id),
    ))
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

/// Messages with an id of their sender, at least one, and which brokers could not say whether they
/// have more.
fn by_unique_key(
    context: &mut Context,
    topic: &str,
    id: &str,
    cluster: Option<&str>,
) -> Result<(Vec<Found>, Vec<String>), Failure> {
    let target = Target {
        broker: None,
        cluster: cluster.map(str::to_owned),
    };
    let brokers = context.brokers_of_topic(topic, &target)?;
    let (found, faults) = by_key(context, &brokers, (topic, id), SAME_ID_MAX, ALWAYS, true)?;
    match (found.is_empty(), faults.is_empty()) {
        (true, true) => Err(Failure::not_found(format!(
            "topic {topic:?} has no message with id {id:?}"
        ))
        .hint("it may be older than what is kept, or in another topic")),
        (true, false) => Err(Failure::refused(faults.join("; "))
            .hint("the brokers that did answer have no message with that id")),
        _ => Ok((found, faults)),
    }
}

/// Messages with a key on some brokers, oldest first.
pub(super) fn by_key(
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

/// Times between which messages were stored.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Span {
    /// Stored at this time or later.
    #[arg(short = 'b', long, value_parser = crate::cli::show::parse_time, default_value = "0",
          allow_hyphen_values = true, value_name = "TIME")]
    begin_timestamp: i64,

    /// Stored at this time or earlier [default: always].
    #[arg(short = 'e', long, value_parser = crate::cli::show::parse_time,
          allow_hyphen_values = true, value_name = "TIME")]
    end_timestamp: Option<i64>,
}

impl Span {
    /// The first and the last of them, in milliseconds since 1970.
    pub fn bounds(self) -> (i64, i64) {
        (self.begin_timestamp, self.end_timestamp.unwrap_or(i64::MAX))
    }
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

    #[command(flatten)]
    stored: Span,

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
        let time = self.stored.bounds();
        let names = (self.topic.as_str(), self.msg_key.as_str());
        let (found, faults) = by_key(context, &brokers, names, self.max_num, time, false)?;
        if found.is_empty() && faults.is_empty() {
            return Err(Failure::not_found(format!(
                "topic {:?} has no message with key {:?} of that time",
                self.topic, self.msg_key
            )));
        }
        Ok(messages_document(&messages(found), Some(Charset::default())).faults(faults))
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
        let (mut found, faults) = by_unique_key(context, &self.topic, &self.msg_id, cluster)?;
        let charset = Charset::default();
        let document = match self.show_all {
            true => messages_document(&messages(found), Some(charset)),
            false => self
                .give_to
                .finish(context, &found.swap_remove(0), charset)?,
        };
        Ok(document.faults(faults))
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

    /// The encoding of the body: UTF-8, GBK, ...
    #[arg(short = 'f', long, value_name = "CHARSET")]
    body_format: Option<Charset>,
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
            .document(context, self.body_format.unwrap_or_default())),
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
