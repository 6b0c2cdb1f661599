//! Messages are read one after the other, and sent.

use super::message_view::messages_document;
use super::trace::trace;
use super::{Context, Target};
use crate::cli::show::{
    Cell, Charset, Document, Failure, Outcome, Table, month_start, now_ms, parse_time,
};
use clap::Args;
use ringmq::client::admin::{
    Admin, AdminError, Broker, Outgoing, Receipt, SENDERS_GROUP, StoredMessage, TOOLS_GROUP,
    UniqueKey,
};
use ringmq::wire::ids;
use ringmq::wire::names;
use ringmq::wire::properties::name;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Messages that one pull asks for.
const PULL_MESSAGES: i32 = 32;

/// Which messages of a queue are read.
struct Range<'a> {
    topic: &'a str,
    queue: i32,
    /// First offset.
    from: i64,
    /// One above the last offset.
    to: i64,
    /// Tags joined by `||`, or `*`.
    expression: &'a str,
}

/// Reads messages of a queue, until there are no more or `take` says that it is enough.
fn read(
    admin: &mut Admin,
    address: &str,
    range: &Range<'_>,
    mut take: impl FnMut(StoredMessage) -> bool,
) -> Result<(), AdminError> {
    let mut at = range.from;
    while at < range.to {
        let queue = (range.topic, range.queue);
        let pulled = admin.pull(
            address,
            TOOLS_GROUP,
            queue,
            at,
            PULL_MESSAGES,
            range.expression,
        )?;
        for message in pulled.messages {
            if message.queue_offset >= range.to {
                return Ok(());
            }
            if fits(&message, range.expression) && !take(message) {
                return Ok(());
            }
        }
        if pulled.next <= at {
            return Ok(());
        }
        at = pulled.next;
    }
    Ok(())
}

/// Whether a message has one of the tags, joined by `||`, or all are wanted: brokers compare hashes.
pub fn fits(message: &StoredMessage, expression: &str) -> bool {
    let mut tags = expression
        .split("||")
        .map(str::trim)
        .filter(|tag| !tag.is_empty());
    matches!(expression.trim(), "" | "*") || tags.any(|tag| Some(tag) == message.tags())
}

/// Offsets of a queue that were stored within a time.
fn offsets_within(
    admin: &mut Admin,
    address: &str,
    (topic, queue): (&str, i32),
    begin: Option<i64>,
    end: Option<i64>,
) -> Result<(i64, i64), AdminError> {
    let from = match begin {
        Some(time) => admin.search_offset(address, topic, queue, time)?,
        None => admin.min_offset(address, topic, queue)?,
    };
    let to = match end {
        Some(time) => admin.search_offset(address, topic, queue, time.saturating_add(1))?,
        None => admin.max_offset(address, topic, queue)?,
    };
    Ok((from, to))
}

/// The queues of a topic that can be read, with their brokers.
fn queues(
    context: &mut Context,
    topic: &str,
    target: &Target,
) -> Result<Vec<(Broker, i32)>, Failure> {
    let route = context.admin.route(topic)?;
    let brokers = context.brokers_of_topic(topic, target)?;
    let mut queues = Vec::new();
    for broker in brokers {
        let same = |data: &&ringmq::wire::body::route::BrokerData| {
            data.broker_name == broker.name
                || data
                    .broker_addrs
                    .values()
                    .any(|address| *address == broker.address)
        };
        let name = route.broker_datas.iter().find(same);
        let name = name.map_or(broker.name.as_str(), |data| data.broker_name.as_str());
        let data = route
            .queue_datas
            .iter()
            .find(|data| data.broker_name == name);
        for queue in 0..data.map_or(0, |data| data.read_queue_nums) {
            queues.push((broker.clone(), queue));
        }
    }
    Ok(queues)
}

/// Reads some queues and shows what is in them, `max` messages at most.
fn show(
    context: &mut Context,
    queues: Vec<(Broker, i32)>,
    topic: &str,
    (begin, end): (Option<i64>, Option<i64>),
    expression: &str,
    (max, body): (usize, Option<Charset>),
) -> Outcome {
    let mut messages: Vec<StoredMessage> = Vec::new();
    let mut more = false;
    for (broker, queue) in queues {
        let admin = &mut context.admin;
        let about = |error: AdminError| error.broker(&broker.name);
        let (from, to) =
            offsets_within(admin, &broker.address, (topic, queue), begin, end).map_err(about)?;
        let range = Range {
            topic,
            queue,
            from,
            to,
            expression,
        };
        read(admin, &broker.address, &range, |message| {
            if messages.len() == max {
                more = true;
                return false;
            }
            messages.push(message);
            true
        })
        .map_err(about)?;
    }
    let document = messages_document(&messages, body).for_programs("more", more.into());
    Ok(match more {
        true => document.note(format!("There are more than {max}; --max shows more.")),
        false => document,
    })
}

/// `printMsg`.
#[derive(Debug, Args)]
pub struct PrintMsg {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Only these tags, joined by ||.
    #[arg(short = 's', long = "sub-expression", default_value = "*")]
    expression: String,

    /// Stored at this time or later.
    #[arg(short = 'b', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    begin_timestamp: Option<i64>,

    /// Stored at this time or earlier.
    #[arg(short = 'e', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    end_timestamp: Option<i64>,

    /// Also bodies.
    #[arg(short = 'd', long, default_value_t = true, action = clap::ArgAction::Set,
          value_name = "true|false")]
    print_body: bool,

    /// The encoding of bodies: UTF-8, GBK, ...
    #[arg(short = 'c', long = "charset-name", value_name = "CHARSET")]
    charset: Option<Charset>,

    /// The topic whose route leads to the queues, where the topic is a light one (LMQ) below it.
    #[arg(short = 'l', long, value_name = "TOPIC")]
    lmq_parent_topic: Option<String>,

    /// Most messages that are shown.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    max: usize,
}

impl PrintMsg {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let routed = self.lmq_parent_topic.as_ref().unwrap_or(&self.topic);
        let queues = queues(context, routed, &Target::default())?;
        let time = (self.begin_timestamp, self.end_timestamp);
        let shown = (self.max, bodies(self.print_body, self.charset));
        show(context, queues, &self.topic, time, &self.expression, shown)
    }
}

/// `printMsgByQueue`.
#[derive(Debug, Args)]
pub struct PrintMsgByQueue {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// The broker, by name or HOST:PORT.
    #[arg(short = 'a', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: String,

    /// The queue.
    #[arg(short = 'i', long)]
    queue_id: i32,

    /// Only these tags, joined by ||.
    #[arg(short = 's', long = "sub-expression", default_value = "*")]
    expression: String,

    /// Stored at this time or later.
    #[arg(short = 'b', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    begin_timestamp: Option<i64>,

    /// Stored at this time or earlier.
    #[arg(short = 'e', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    end_timestamp: Option<i64>,

    /// Shows the messages.
    #[arg(short = 'p', long = "print-msg", default_value_t = true, action = clap::ArgAction::Set,
          value_name = "true|false")]
    print: bool,

    /// Also bodies.
    #[arg(short = 'd', long, default_value_t = true, action = clap::ArgAction::Set,
          value_name = "true|false")]
    print_body: bool,

    /// The encoding of bodies: UTF-8, GBK, ...
    #[arg(short = 'c', long = "charset-name", value_name = "CHARSET")]
    charset: Option<Charset>,

    /// Counts the messages by tag.
    #[arg(short = 'f', long = "calculate", default_value_t = false, action = clap::ArgAction::Set,
          value_name = "true|false")]
    count: bool,

    /// Most messages that are shown.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    max: usize,
}

/// Bodies in an encoding, or none.
fn bodies(shown: bool, charset: Option<Charset>) -> Option<Charset> {
    shown.then(|| charset.unwrap_or_default())
}

/// Most tags that are counted; what comes after is counted together.
const TAGS_MAX: usize = 10_000;

impl PrintMsgByQueue {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: Some(self.broker.clone()),
            cluster: None,
        };
        let broker = context.brokers_of_topic(&self.topic, &target)?.remove(0);
        let time = (self.begin_timestamp, self.end_timestamp);
        let mut document = match self.print {
            true => show(
                context,
                vec![(broker.clone(), self.queue_id)],
                &self.topic,
                time,
                &self.expression,
                (self.max, bodies(self.print_body, self.charset)),
            )?,
            false => Document::new(),
        };
        if self.count {
            document = document.table(self.by_tag(context, &broker)?);
        }
        Ok(document)
    }

    fn by_tag(&self, context: &mut Context, broker: &Broker) -> Result<Table, Failure> {
        let admin = &mut context.admin;
        let queue = (self.topic.as_str(), self.queue_id);
        let (from, to) = offsets_within(
            admin,
            &broker.address,
            queue,
            self.begin_timestamp,
            self.end_timestamp,
        )?;
        let range = Range {
            topic: &self.topic,
            queue: self.queue_id,
            from,
            to,
            expression: &self.expression,
        };
        let mut tags: BTreeMap<Option<String>, i64> = BTreeMap::new();
        read(admin, &broker.address, &range, |message| {
            let tag = message.tags().map(str::to_owned);
            let tag = match tags.len() >= TAGS_MAX && !tags.contains_key(&tag) {
                true => Some("(others)".to_owned()),
                false => tag,
            };
            *tags.entry(tag).or_default() += 1;
            true
        })?;
        let columns = [("tag", "TAG"), ("messages", "MESSAGES")];
        let mut table = Table::new("tags", &columns, "no messages");
        for (tag, count) in tags {
            table.row([Cell::of(tag, Cell::Text), Cell::Count(count)]);
        }
        Ok(table)
    }
}

/// `consumeMessage`.
#[derive(Debug, Args)]
pub struct ConsumeMessage {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// Only this broker, by name or HOST:PORT.
    #[arg(short = 'b', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: Option<String>,

    /// Only this queue of the broker.
    #[arg(short = 'i', long, requires = "broker")]
    queue_id: Option<i32>,

    /// From this offset of the queue on.
    #[arg(short = 'o', long, requires = "queue_id")]
    offset: Option<i64>,

    /// Kept for scripts: no offset of any group is changed.
    #[arg(short = 'g', long = "consumer-group", hide = true)]
    group: Option<String>,

    /// Stored at this time or later.
    #[arg(short = 's', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    begin_timestamp: Option<i64>,

    /// Stored at this time or earlier.
    #[arg(short = 'e', long, value_parser = parse_time, allow_hyphen_values = true, value_name = "TIME")]
    end_timestamp: Option<i64>,

    /// Most messages that are shown.
    #[arg(short = 'c', long = "message-number", aliases = ["MessageNumber", "max"],
          default_value_t = 128, value_name = "N")]
    max: usize,
}

impl ConsumeMessage {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: self.broker.clone(),
            cluster: None,
        };
        let mut queues = queues(context, &self.topic, &target)?;
        if let Some(wanted) = self.queue_id {
            queues.retain(|(_, queue)| *queue == wanted);
            if queues.is_empty() {
                return Err(Failure::not_found(format!(
                    "topic {:?} has no queue {wanted} there",
                    self.topic
                )));
            }
        }
        let Some(offset) = self.offset else {
            let time = (self.begin_timestamp, self.end_timestamp);
            let shown = (self.max, Some(Charset::default()));
            return show(context, queues, &self.topic, time, "*", shown);
        };
        let (broker, queue) = queues.remove(0);
        let mut messages = Vec::new();
        let range = Range {
            topic: &self.topic,
            queue,
            from: offset,
            to: i64::MAX,
            expression: "*",
        };
        let mut read_on = |message| {
            messages.push(message);
            messages.len() < self.max
        };
        if self.max > 0 {
            let admin = &mut context.admin;
            let max = admin.max_offset(&broker.address, &self.topic, queue)?;
            let range = Range { to: max, ..range };
            read(admin, &broker.address, &range, &mut read_on)?;
        }
        Ok(messages_document(&messages, Some(Charset::default())))
    }
}

/// `sendMessage`.
#[derive(Debug, Args)]
pub struct SendMessage {
    /// The topic; one that is not there is made where brokers make topics by themselves.
    #[arg(short = 't', long)]
    topic: String,

    /// The body.
    #[arg(short = 'p', long, allow_hyphen_values = true)]
    body: String,

    /// Keys, with blanks between them.
    #[arg(short = 'k', long)]
    key: Option<String>,

    /// The tag.
    #[arg(short = 'c', long)]
    tags: Option<String>,

    /// To this broker, by name or HOST:PORT.
    #[arg(short = 'b', long = "broker", aliases = ["brokerName", "broker-name"])]
    broker: Option<String>,

    /// To this queue of the broker.
    #[arg(short = 'i', long, requires = "broker")]
    qid: Option<i32>,

    /// Also sends a trace of it, as senders do who trace their messages.
    #[arg(short = 'm', long, default_value_t = false, action = clap::ArgAction::Set,
          value_name = "true|false")]
    msg_trace_enable: bool,
}

impl SendMessage {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        names::check_topic(&self.topic)
            .map_err(|error| Failure::usage(format!("topic {:?}: {error}", self.topic)))?;
        let broker = writable(context, &self.topic, self.broker.as_deref())?;
        let mut properties = Vec::new();
        let given = [(name::KEYS, &self.key), (name::TAGS, &self.tags)];
        for (name, value) in given {
            if let Some(value) = value {
                if value.contains(['\u{1}', '\u{2}']) {
                    return Err(Failure::usage(format!("{name} contains byte 1 or 2")));
                }
                properties.push((name, value.as_str()));
            }
        }
        let outgoing = Outgoing {
            topic: &self.topic,
            body: self.body.as_bytes(),
            properties,
            queue: self.qid,
            ..Outgoing::default()
        };
        let (began, since) = (now_ms(), Instant::now());
        let sent = context.admin.send(&broker.address, &outgoing);
        let receipt = sent.map_err(|error| error.broker(&broker.name))?;
        let took = since.elapsed();
        let mut faults = Vec::new();
        if self.msg_trace_enable
            && let Err(failure) = traced(context, &broker, &receipt, (began, took))
        {
            faults.push(format!("it has no trace: {}", failure.message));
        }
        Ok(sent_document(&self.topic, &broker, receipt).faults(faults))
    }
}

/// Sends the trace of a message that was sent.
fn traced(
    context: &mut Context,
    broker: &Broker,
    receipt: &Receipt,
    times: (i64, Duration),
) -> Result<(), Failure> {
    let place = ids::parse_offset_id(&receipt.message_id);
    let (_, position) = place.ok_or_else(|| {
        Failure::failed(format!("{:?} is no offset message id", receipt.message_id))
    })?;
    // A sender that makes no id of its own is told it by the broker.
    let message = context.admin.message_at(&broker.address, "", position)?;
    trace(context, &message, SENDERS_GROUP, times)
}

/// What became of a message that was sent.
pub(super) fn sent_document(topic: &str, broker: &Broker, receipt: Receipt) -> Document {
    let status = match receipt.status {
        "SEND_OK" => Cell::Good("SEND_OK".to_owned()),
        other => Cell::Bad(other.to_owned()),
    };
    Document::new()
        .field("topic", "Topic", Cell::text(topic))
        .field("brokerName", "Broker", Cell::text(&broker.name))
        .field("queueId", "Queue", Cell::Plain(receipt.queue.into()))
        .field("queueOffset", "Queue offset", Cell::Plain(receipt.offset))
        .field("sendStatus", "Status", status)
        .field(
            "offsetMsgId",
            "Offset message id",
            Cell::Text(receipt.message_id),
        )
}

/// The broker that a message is sent to: the given one, or the first that may be written; for a
/// topic that is not there the first that would make it.
pub(super) fn writable(
    context: &mut Context,
    topic: &str,
    broker: Option<&str>,
) -> Result<Broker, Failure> {
    let target = Target {
        broker: broker.map(str::to_owned),
        cluster: None,
    };
    if broker.is_some_and(ringmq::client::admin::is_address) {
        return Ok(context.brokers(&target)?.remove(0));
    }
    let route = match context.admin.route(topic) {
        Ok(route) => route,
        Err(error) if error.is_not_found() => context
            .admin
            .route(names::AUTO_CREATE_TOPIC)
            .map_err(|_| Failure::from(error))?,
        Err(error) => return Err(error.into()),
    };
    let may_write = |name: &str| {
        let mut queues = route.queue_datas.iter();
        queues
            .any(|data| data.broker_name == name && data.perm & 2 != 0 && data.write_queue_nums > 0)
    };
    for data in &route.broker_datas {
        let fits = broker.is_none_or(|wanted| wanted == data.broker_name);
        let master = data.broker_addrs.get(&ringmq::client::admin::MASTER);
        if let (true, true, Some(address)) = (fits, may_write(&data.broker_name), master) {
            return Ok(Broker {
                name: data.broker_name.clone(),
                id: ringmq::client::admin::MASTER,
                cluster: data.cluster.clone(),
                address: address.clone(),
            });
        }
    }
    Err(
        super::brokers::none_found(format!("topic {topic:?} has no broker that takes messages"))
            .hint("`ringmq admin topicRoute` shows permissions, `addWritePerm` gives them back"),
    )
}

/// `DecodeMessageId`.
#[derive(Debug, Args)]
pub struct DecodeMessageId {
    /// The id that a sender gave.
    #[arg(short = 'i', long = "message-id")]
    id: String,
}

impl DecodeMessageId {
    pub(super) fn run(&self, _: &mut Context) -> Outcome {
        let key = UniqueKey::parse(&self.id).ok_or_else(|| {
            Failure::usage(format!("{:?} is no id of 32 or 56 hex digits", self.id))
        })?;
        // It tells the time within a month only: the last month in which it is not in the future.
        let within = |back| month_start(now_ms(), back) + i64::from(key.month_ms);
        let time = match within(0) {
            time if time <= now_ms() => time,
            _ => within(1),
        };
        Ok(Document::new()
            .field("ip", "Sender's address", Cell::text(key.ip.to_string()))
            .field("pid", "Process", Cell::Plain(key.pid.into()))
            .field("time", "Made (or some month before)", Cell::Time(time))
            .field("counter", "Number", Cell::Plain(key.counter.into())))
    }
}

/// `queryCq`.
#[derive(Debug, Args)]
pub struct QueryCq {
    /// The topic.
    #[arg(short = 't', long)]
    topic: String,

    /// The queue.
    #[arg(short = 'q', long)]
    queue: i32,

    /// The first entry.
    #[arg(short = 'i', long)]
    index: i64,

    /// How many entries.
    #[arg(short = 'c', long, default_value_t = 10, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    count: i32,

    /// The broker, by name or HOST:PORT.
    #[arg(short = 'b', long)]
    broker: Option<String>,

    /// What this group's filter makes of them.
    #[arg(short = 'g', long = "consumer")]
    group: Option<String>,
}

impl QueryCq {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let target = Target {
            broker: self.broker.clone(),
            cluster: None,
        };
        let broker = context.brokers_of_topic(&self.topic, &target)?.remove(0);
        let view = context
            .admin
            .queue_entries(
                &broker.address,
                (&self.topic, self.queue),
                self.index,
                self.count,
                self.group.as_deref(),
            )
            .map_err(|error| error.broker(&broker.name))?;
        let columns = [
            ("index", "OFFSET"),
            ("physicOffset", "LOG OFFSET"),
            ("physicSize", "SIZE"),
            ("tagsCode", "TAG HASH"),
            ("eval", "PASSES"),
            ("msg", "REMARK"),
        ];
        let mut table = Table::new("entries", &columns, "no entries there");
        for (at, entry) in (self.index..).zip(view.queue_data) {
            table.row([
                Cell::Plain(at),
                Cell::Plain(entry.physic_offset),
                Cell::Bytes(entry.physic_size.into()),
                Cell::Plain(entry.tags_code),
                match self.group {
                    Some(_) => Cell::Flag(entry.eval),
                    None => Cell::None,
                },
                Cell::of(entry.msg, Cell::Text),
            ]);
        }
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .field("brokerName", "Broker", Cell::text(&broker.name))
            .field("minOffset", "Min offset", Cell::Plain(view.min_queue_index))
            .field("maxOffset", "Max offset", Cell::Plain(view.max_queue_index))
            .table(table))
    }
}
