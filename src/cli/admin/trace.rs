//! Traces: what clients have written down of a message.

use super::find_messages::{Found, Span, by_key};
use super::messages::writable;
use super::{Context, Target};
use crate::cli::show::{Cell, Document, Failure, Outcome, Table};
use clap::Args;
use ringmq::client::admin::{Outgoing, StoredMessage};
use ringmq::wire::names;
use ringmq::wire::properties::name;
use std::time::Duration;

/// `queryMsgTraceById`.
#[derive(Debug, Args)]
pub struct QueryMsgTraceById {
    /// The id that the sender gave.
    #[arg(short = 'i', long)]
    msg_id: String,

    /// The topic that traces are sent to.
    #[arg(short = 't', long, default_value = names::TRACE_TOPIC)]
    trace_topic: String,

    #[command(flatten)]
    stored: Span,

    /// Most traces that each broker gives.
    #[arg(short = 'c', long, default_value_t = 64, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    max_num: i32,
}

impl QueryMsgTraceById {
    pub(super) fn run(&self, context: &mut Context) -> Outcome {
        let brokers = context.brokers_of_topic(&self.trace_topic, &Target::default())?;
        let time = self.stored.bounds();
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

/// Writes down that a message was sent, as a sender does who traces: `took` from `began` on, ms since
/// 1970.
pub(super) fn trace(
    context: &mut Context,
    message: &StoredMessage,
    group: &str,
    (began, took): (i64, Duration),
) -> Result<(), Failure> {
    let broker = writable(context, names::TRACE_TOPIC, None)?;
    let id = message.unique_key().unwrap_or(&message.message_id);
    let keys = match message.keys() {
        Some(keys) => format!("{id} {keys}"),
        None => id.to_owned(),
    };
    let body = publication(message, id, group, (began, took));
    let outgoing = Outgoing {
        topic: names::TRACE_TOPIC,
        body: body.as_bytes(),
        properties: vec![(name::KEYS, &keys)],
        ..Outgoing::default()
    };
    context
        .admin
        .send(&broker.address, &outgoing)
        .map_err(|error| error.broker(&broker.name))?;
    Ok(())
}

/// The record of a send; fields as in [`traces_of`].
fn publication(
    message: &StoredMessage,
    id: &str,
    group: &str,
    (began, took): (i64, Duration),
) -> String {
    let fields = [
        "Pub",
        &began.to_string(),
        "DefaultRegion",
        group,
        &message.topic,
        id,
        message.tags().unwrap_or_default(),
        message.keys().unwrap_or_default(),
        &message.store_host,
        &message.body.len().to_string(),
        &took.as_millis().to_string(),
        // A normal message.
        "0",
        &message.message_id,
        "true",
    ];
    fields.join("\u{1}") + "\u{2}"
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
