//! `ringmq consume`.

use super::failure;
use super::format::{Format, Kind, TEMPLATE_HELP};
use super::tail::{From, Tail};
use crate::cli::admin::{Common, Context, refuse};
use crate::cli::show::{Failure, Stop, clean, parse_time};
use clap::Args;
use ringmq::client::admin::StoredMessage;
use ringmq::client::{
    ClientSettings, ConsumeFromWhere, Error, ErrorKind, Filter, MessageQueue, PullConsumer,
    PullConsumerSettings, ReceivedMessage, Subscription,
};
use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  ringmq consume Orders
      Everything there is now, oldest first in each queue.
  ringmq consume Orders --from last --follow
      What comes from now on, until Ctrl-C.
  ringmq consume Orders --from -1h --tag 'new || paid' --format json
  ringmq consume Orders --group billing --follow
      As a member of a group: queues are shared with the other members, and what is written here
      counts as consumed.
  ringmq consume Orders --format template --template '{queue}/{offset} {keys} {body}\\n'

Exit codes: 0 done; 1 nobody could be asked; 2 the command line is wrong; 3 there is no such topic;
4 refused by a broker.";

/// How long a member of a group waits for messages before it takes the topic for read.
const GROUP_IDLE: Duration = Duration::from_secs(3);
/// How long a member may wait for its share of the queues.
const GROUP_JOIN: Duration = Duration::from_secs(30);
/// Between two looks at queues that had nothing.
const LOOK: Duration = Duration::from_millis(100);

/// Writes the messages of a topic.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConsumeArgs {
    /// The topic.
    topic: String,

    #[command(flatten)]
    common: Common,

    /// Where to begin: first, last, a time (now, -1h, 2026-11-30 06:10) or offset:N.
    ///
    /// With --group only where the group has not consumed anything yet.
    #[arg(long, value_name = "WHERE", default_value = "first", value_parser = from,
          allow_hyphen_values = true)]
    from: From,

    /// Consumes as a member of this group. Without, no offset is stored.
    #[arg(short = 'g', long)]
    group: Option<String>,

    /// Only these tags, joined by ||.
    #[arg(short = 't', long, default_value = "*", alias = "tags")]
    tag: String,

    /// Waits for more at the end.
    #[arg(short = 'f', long)]
    follow: bool,

    /// Ends after so many messages.
    #[arg(long, value_name = "N")]
    max: Option<u64>,

    /// Only one queue: BROKER:QUEUE.
    #[arg(short = 'q', long, value_name = "BROKER:QUEUE", value_parser = super::produce::queue,
          conflicts_with = "group")]
    queue: Option<(String, i32)>,

    /// How a message is written.
    #[arg(long, value_enum, default_value_t)]
    format: Kind,

    /// With --format template: text with {body}, {offset}, {property:NAME}, ...
    #[arg(long, value_name = "TEXT", long_help = TEMPLATE_HELP)]
    template: Option<String>,
}

fn from(text: &str) -> Result<From, String> {
    match text {
        "first" | "earliest" => return Ok(From::First),
        "last" | "latest" => return Ok(From::Last),
        _ => {}
    }
    if let Some(offset) = text.strip_prefix("offset:") {
        return match offset.parse() {
            Ok(offset @ 0..) => Ok(From::Offset(offset)),
            _ => Err("offset: and a number from 0".to_owned()),
        };
    }
    // A number below any time of a message is an offset.
    match parse_time(text)? {
        offset if text.bytes().all(|b| b.is_ascii_digit()) && offset < 100_000_000_000 => {
            Ok(From::Offset(offset))
        }
        -1 => Ok(From::Last),
        time => Ok(From::Time(time)),
    }
}

/// Where messages are written, and how many still may be.
struct Sink {
    format: Format,
    terminal: bool,
    left: Option<u64>,
    buffer: Vec<u8>,
    written: u64,
}

/// What a member of a group has told of, and has not seen to be better since.
#[derive(Default)]
struct Troubled {
    /// Asking for messages failed.
    polls: bool,
    /// Their offsets could not be stored.
    queues: HashSet<MessageQueue>,
}

/// Why writing ends.
enum End {
    /// As many as were asked for.
    Enough,
    /// Nobody reads any more.
    Closed,
    /// It cannot be written.
    Failed(io::Error),
}

impl Sink {
    fn write(&mut self, messages: &[StoredMessage]) -> Result<(), End> {
        for message in messages {
            if self.left == Some(0) {
                break;
            }
            self.format.write(&mut self.buffer, message, self.terminal);
            self.left = self.left.map(|left| left - 1);
            self.written += 1;
            if self.buffer.len() >= 1 << 20 {
                self.flush()?;
            }
        }
        self.flush()?;
        match self.left {
            Some(0) => Err(End::Enough),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        let mut out = io::stdout().lock();
        let done = out.write_all(&self.buffer).and_then(|()| out.flush());
        self.buffer.clear();
        done.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => End::Closed,
            _ => End::Failed(error),
        })
    }
}

impl ConsumeArgs {
    /// Consumes and says with which code to end.
    pub fn run(&self) -> ExitCode {
        let done = self.sink().and_then(|mut sink| {
            let stop = Stop::on_signals()?;
            match &self.group {
                Some(group) => self.as_member(group, &mut sink, &stop),
                None => self.alone(&mut sink, &stop),
            }
        });
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => refuse(&failure),
        }
    }

    fn sink(&self) -> Result<Sink, Failure> {
        let is_json = self.common.output == crate::cli::show::Format::Json;
        let format = match (self.format, &self.template) {
            (Kind::Text, None) if is_json => Format::Json,
            (Kind::Template | Kind::Text, Some(template)) => {
                Format::template(template).map_err(Failure::usage)?
            }
            (Kind::Template, None) => {
                return Err(
                    Failure::usage("--format template needs --template TEXT").hint(TEMPLATE_HELP)
                );
            }
            (_, Some(_)) => return Err(Failure::usage("--template goes with --format template")),
            (Kind::Text, None) => Format::Text,
            (Kind::Json, None) => Format::Json,
            (Kind::Raw, None) => Format::Raw,
        };
        Ok(Sink {
            format,
            terminal: io::stdout().is_terminal(),
            left: self.max,
            buffer: Vec::new(),
            written: 0,
        })
    }

    /// Reads without a group.
    fn alone(&self, sink: &mut Sink, stop: &Stop) -> Result<(), Failure> {
        let mut context = self.common.connect()?;
        let done = self.read(&mut context, sink, stop);
        done.map_err(|failure| context.explain(failure))
    }

    fn read(&self, context: &mut Context, sink: &mut Sink, stop: &Stop) -> Result<(), Failure> {
        let only = self.queue.as_ref();
        let (topic, tag) = (&self.topic, &self.tag);
        let mut tail = Tail::new(context, topic, only, tag, self.from, self.follow)?;
        while !stop.is_asked() {
            let round = tail.round(context, self.follow);
            if let Err(end) = sink.write(&round.messages) {
                return end_of(end);
            }
            for note in &round.notes {
                eprintln!("ringmq: {}", clean(note));
            }
            for fault in round.faults {
                // Who follows outlives a broker that starts again.
                match self.follow && fault.passes {
                    true => try_again(&fault.failure),
                    false => return Err(fault.failure),
                }
            }
            if round.done {
                break;
            }
            if self.follow && round.messages.is_empty() {
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Consumes as a member of a group. Offsets are stored behind what was written.
    fn as_member(&self, group: &str, sink: &mut Sink, stop: &Stop) -> Result<(), Failure> {
        let client = ClientSettings::with_name_servers(&self.common.nameserver.replace(',', ";"));
        let mut settings = PullConsumerSettings {
            auto_commit: false,
            ..PullConsumerSettings::new(group)
        };
        (
            settings.setup.consume_from_where,
            settings.setup.consume_timestamp_ms,
        ) = match self.from {
            From::First => (ConsumeFromWhere::FirstOffset, None),
            From::Last => (ConsumeFromWhere::LastOffset, None),
            From::Time(time) => (ConsumeFromWhere::Timestamp, Some(time)),
            From::Offset(_) => {
                return Err(
                    Failure::usage("--from with an offset is for reading without a group")
                        .hint("`ringmq admin resetOffsetByTime` sets where a group goes on"),
                );
            }
        };
        if let Some(max) = self.max {
            settings.poll_batch_max = settings.poll_batch_max.min(max.max(1) as usize);
        }
        let subscription = Subscription {
            topic: self.topic.as_str().into(),
            filter: Filter::Tags(self.tag.as_str().into()),
        };
        let consumer = PullConsumer::start(&client, settings, [subscription])
            .map_err(|error| failure(&error))?;
        let done = self.poll(&consumer, sink, stop);
        let stopped = consumer.shutdown().map_err(|error| failure(&error));
        done.and(stopped)
    }

    fn poll(&self, consumer: &PullConsumer, sink: &mut Sink, stop: &Stop) -> Result<(), Failure> {
        let mut last = Instant::now();
        let mut has_queues = false;
        let mut troubled = Troubled::default();
        while !stop.is_asked() {
            let found = match consumer.poll(Duration::from_millis(500)) {
                Err(error) => {
                    let is_known = std::mem::replace(&mut troubled.polls, true);
                    self.outlive(&error, is_known)?;
                    std::thread::sleep(LOOK);
                    continue;
                }
                Ok(found) => found,
            };
            troubled.polls = false;
            if found.is_empty() {
                has_queues = has_queues
                    || consumer
                        .assignment()
                        .wait()
                        .is_ok_and(|queues| !queues.is_empty());
                let patience = if has_queues { GROUP_IDLE } else { GROUP_JOIN };
                if !self.follow && last.elapsed() > patience {
                    break;
                }
                continue;
            }
            has_queues = true;
            last = Instant::now();
            let messages: Vec<StoredMessage> = found.iter().map(StoredMessage::from).collect();
            let before = sink.written;
            let written = sink.write(&messages);
            let count = (sink.written - before) as usize;
            if !matches!(written, Err(End::Closed | End::Failed(_))) {
                // Of the last poll only what was written counts as consumed.
                self.store(consumer, &found[..count], &mut troubled)?;
            }
            if let Err(end) = written {
                return end_of(end);
            }
        }
        Ok(())
    }

    /// Stores how far the queues are read, each by itself: one that cannot be stored is in no
    /// other's way.
    fn store(
        &self,
        consumer: &PullConsumer,
        written: &[ReceivedMessage],
        troubled: &mut Troubled,
    ) -> Result<(), Failure> {
        let mut offsets = HashMap::new();
        for message in written {
            offsets.insert(message.queue.clone(), message.queue_offset + 1);
        }
        let stored: Vec<_> = offsets
            .into_iter()
            .map(|(queue, offset)| {
                let stored = consumer.commit_offsets(vec![(queue.clone(), offset)]);
                (queue, stored)
            })
            .collect();
        for (queue, stored) in stored {
            match stored.wait() {
                Ok(()) => {
                    troubled.queues.remove(&queue);
                }
                // Another member has the queue now, and goes on where the group had stored it.
                Err(error) if matches!(error.kind(), ErrorKind::State { .. }) => {
                    troubled.queues.remove(&queue);
                }
                Err(error) => self.outlive(&error, !troubled.queues.insert(queue))?,
            }
        }
        Ok(())
    }

    /// Goes on after an error that may pass, where more is waited for: the client tries again by
    /// itself. What is known is not told again.
    fn outlive(&self, error: &Error, is_known: bool) -> Result<(), Failure> {
        let failure = failure(error);
        if !self.follow || !error.is_retryable() {
            return Err(failure);
        }
        if !is_known {
            try_again(&failure);
        }
        Ok(())
    }
}

/// Tells of what does not end who follows.
fn try_again(failure: &Failure) {
    eprintln!("ringmq: {failure}\n  it is tried again");
}

fn end_of(end: End) -> Result<(), Failure> {
    match end {
        End::Enough | End::Closed => Ok(()),
        End::Failed(error) => Err(Failure::failed(format!("standard output: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_read() {
        assert_eq!(from("first"), Ok(From::First));
        assert_eq!(from("latest"), Ok(From::Last));
        assert_eq!(from("offset:7"), Ok(From::Offset(7)));
        assert_eq!(from("7"), Ok(From::Offset(7)));
        assert_eq!(from("1796020969475"), Ok(From::Time(1_796_020_969_475)));
        assert!(matches!(from("-1h"), Ok(From::Time(_))));
        assert!(matches!(from("2026-11-30"), Ok(From::Time(_))));
        for bad in ["", "offset:", "offset:-1", "soon", "-x"] {
            assert!(from(bad).is_err(), "{bad}");
        }
    }
}
