//! `ringmq produce`.

use super::failure;
use super::lines::{Input, Line, LineFault, Lines};
use super::pacing::Pacing;
use crate::cli::admin::{Common, finish, refuse};
use crate::cli::show::{Cell, Document, Failure, Format, LOOK, Outcome, Stop, count, rate};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ringmq::client::{
    ClientSettings, Error, MESSAGE_BYTES_MAX, Message, MessageQueue, Producer, ProducerSettings,
    SendRequest, SendResult, SendStatus,
};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  echo 'first message' | ringmq produce Orders
  ringmq produce Orders -f orders.txt --tag new --rate 1000
      Every line is a message, 1,000 a second.
  tail -F app.log | ringmq produce Logs --property host=web-1 --quiet
  ringmq produce Orders --key-separator : < keyed.txt
      Lines as KEY:BODY; messages with the same key stay in order.
  ringmq consume Orders --format json | ringmq produce Copy --input json

Exit codes: 0 all are stored; 1 nobody could be asked; 2 the command line or a line of the input is
wrong; 3 there is no such topic; 4 refused, or some are stored and some are not.";

/// Lines that are read before they are wanted.
const LINES_AHEAD: usize = 16;

/// Sends the lines of standard input or of a file as messages.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProduceArgs {
    /// The topic.
    topic: String,

    #[command(flatten)]
    common: Common,

    /// The input; - is standard input.
    #[arg(short = 'f', long, value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// What a line is.
    #[arg(long, value_enum, default_value_t)]
    input: Input,

    /// Keys of every message, with blanks between them.
    #[arg(short = 'k', long)]
    key: Option<String>,

    /// Text between key and body of every line.
    #[arg(long, value_name = "TEXT", conflicts_with = "key", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key_separator: Option<String>,

    /// Tag of every message.
    #[arg(short = 't', long, alias = "tags")]
    tag: Option<String>,

    /// A property of every message; can be given several times.
    #[arg(short = 'p', long = "property", value_name = "NAME=VALUE", value_parser = pair)]
    properties: Vec<(String, String)>,

    /// Delay level, from 1 (1 s) to 18 (2 h) unless the broker has others.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(1..=1000))]
    delay_level: Option<u32>,

    /// Messages with the same sharding key stay in order.
    #[arg(long, value_name = "KEY")]
    sharding_key: Option<String>,

    /// To one queue: BROKER:QUEUE.
    #[arg(short = 'q', long, value_name = "BROKER:QUEUE", value_parser = queue)]
    queue: Option<(String, i32)>,

    /// Messages a second.
    #[arg(long, value_name = "N", value_parser = per_second)]
    rate: Option<f64>,

    /// Messages on their way at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    in_flight: u32,

    /// Goes on where a message is not stored.
    #[arg(long)]
    keep_going: bool,

    /// The group of the producer.
    #[arg(short = 'g', long, default_value = "RINGMQ_PRODUCE")]
    group: String,

    /// Longest body in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20,
          value_parser = clap::value_parser!(u32).range(1..=MESSAGE_BYTES_MAX as i64))]
    max_message_size: u32,

    /// Shows no progress and no sum.
    #[arg(long)]
    quiet: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("NAME=VALUE".to_owned()),
    }
}

/// Reads `BROKER:QUEUE`.
///
/// # Errors
/// Text with the form.
pub fn queue(text: &str) -> Result<(String, i32), String> {
    let parts = text.rsplit_once(':');
    let read = parts.and_then(|(broker, queue)| Some((broker, queue.parse::<u16>().ok()?)));
    match read {
        Some((broker, queue)) if !broker.is_empty() => Ok((broker.to_owned(), queue.into())),
        _ => Err("BROKER:QUEUE, as `ringmq admin topicStatus` shows them".to_owned()),
    }
}

fn per_second(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=1e7).contains(&rate) => Ok(rate),
        _ => Err("from 0.001 to 10000000".to_owned()),
    }
}

/// What has become of the messages so far.
#[derive(Default)]
struct Sums {
    stored: i64,
    bytes: i64,
    not_flushed: i64,
    failed: i64,
    first_failure: Option<Failure>,
}

impl ProduceArgs {
    /// Sends and says with which code to end.
    pub fn run(&self) -> ExitCode {
        match self.send_all() {
            Ok(document) if self.common.output == Format::Json => {
                finish(Ok(document), Format::Json)
            }
            Ok(document) => match document.faults.is_empty() {
                true => ExitCode::SUCCESS,
                false => finish(
                    Ok(Document::new().faults(document.faults)),
                    self.common.output,
                ),
            },
            Err(failure) => refuse(&failure),
        }
    }

    fn send_all(&self) -> Outcome {
        let (input, size) = self.open()?;
        let limit = self.max_message_size as usize;
        let lines = Lines::new(input, self.input, self.key_separator.clone(), limit);
        let stop = Stop::on_signals()?;
        let client = ClientSettings::with_name_servers(&self.common.nameserver.replace(',', ";"));
        let settings = ProducerSettings {
            send_timeout_ms: self.common.timeout.as_millis().max(1) as u64,
            max_message_size: limit,
            in_flight_max: self.in_flight as usize,
            ..ProducerSettings::new(self.group.as_str())
        };
        let producer = Producer::start(&client, settings).map_err(|error| failure(&error))?;
        let topic: Arc<str> = Arc::from(self.topic.as_str());
        let begin = Instant::now();
        let mut pacing = Pacing::new(self.rate);
        let lines = read_ahead(lines);
        let mut sends = Sends::new(self.progress(size));
        let mut wrong_line = None;
        let goes_on =
            |sends: &Sends| !stop.is_asked() && (self.keep_going || sends.sums.failed == 0);
        while goes_on(&sends) {
            if sends.under_way >= self.in_flight as usize {
                sends.settle(LOOK);
                continue;
            }
            // What has become of others is told while the next line is waited for.
            sends.settle(Duration::ZERO);
            let (number, line) = match lines.recv_timeout(LOOK) {
                Ok((number, Ok(line))) => (number, line),
                Ok((_, Err(why))) => {
                    wrong_line = Some(why);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let now = Instant::now();
            let due = now + pacing.wait(now);
            let wait = || due.saturating_duration_since(Instant::now());
            while !wait().is_zero() && goes_on(&sends) {
                sends.settle(wait().min(LOOK));
            }
            if goes_on(&sends) {
                sends.begin(&producer, number, self.request(&topic, line));
            }
        }
        let sums = sends.end();
        let stopped = producer.shutdown();
        if let (Err(error), 0) = (stopped, sums.failed) {
            eprintln!("ringmq: {error}");
        }
        self.sum(&sums, begin.elapsed(), wrong_line)
    }

    fn open(&self) -> Result<(Box<dyn BufRead + Send>, Option<u64>), Failure> {
        if self.file.as_os_str() == "-" {
            if io::stdin().is_terminal() && !self.quiet {
                eprintln!("Every line is a message to {:?}; Ctrl-D ends.", self.topic);
            }
            return Ok((
                Box::new(BufReader::with_capacity(64 << 10, io::stdin())),
                None,
            ));
        }
        let failed = |error| Failure::usage(format!("{}: {error}", self.file.display()));
        let file = File::open(&self.file).map_err(failed)?;
        let size = file.metadata().ok().filter(|meta| meta.is_file());
        let size = size.map(|meta| meta.len());
        Ok((Box::new(BufReader::with_capacity(64 << 10, file)), size))
    }

    /// The message of a line, and the bytes of its body.
    fn request(&self, topic: &Arc<str>, line: Line) -> (usize, SendRequest) {
        let bytes = line.body.len();
        let mut message = Message::new(topic.clone(), line.body);
        for (name, value) in self.properties.iter().chain(&line.properties) {
            message = message.property(name, value);
        }
        if let Some(tag) = line.tags.as_ref().or(self.tag.as_ref()) {
            message = message.tag(tag);
        }
        if let Some(keys) = line.keys.as_ref().or(self.key.as_ref()) {
            message = message.keys(keys.split(' ').filter(|key| !key.is_empty()));
        }
        if let Some(level) = line.delay_level.or(self.delay_level) {
            message = message.delay_level(level);
        }
        let keyed = self.key_separator.as_ref().and(line.keys.as_ref());
        let sharding = line.sharding_key.as_ref().or(self.sharding_key.as_ref());
        if let Some(key) = sharding.or(keyed) {
            message = message.sharding_key(key);
        }
        let request = SendRequest::from(message);
        let request = match &self.queue {
            Some((broker, queue)) => {
                request.queue(MessageQueue::new(topic.clone(), broker.as_str(), *queue))
            }
            None => request,
        };
        (bytes, request)
    }

    /// Progress on a terminal: of the file, or a count.
    fn progress(&self, size: Option<u64>) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let (bar, template) = match size {
            Some(size) => (
                ProgressBar::new(size),
                "{bar:30} {bytes}/{total_bytes}  {msg}  {eta} left",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {msg}"),
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    fn sum(&self, sums: &Sums, took: Duration, wrong_line: Option<LineFault>) -> Outcome {
        let seconds = took.as_secs_f64().max(1e-9);
        if !self.quiet {
            let per_second = rate(sums.stored as f64 / seconds);
            let failed = match sums.failed {
                0 => String::new(),
                failed => format!(", {} not stored", count(failed)),
            };
            let line = format!(
                "{} stored in {:?}: {seconds:.1} s, {per_second}{failed}",
                count(sums.stored),
                self.topic
            );
            let _ = writeln!(io::stderr(), "{line}");
        }
        let mut faults = Vec::new();
        if let Some(failure) = &sums.first_failure {
            if sums.stored == 0 {
                return Err(failure.clone());
            }
            faults.push(failure.to_string());
        }
        if let Some(LineFault { what, too_long }) = wrong_line {
            let message = match sums.stored {
                0 => what,
                stored => format!("{what}; {} before it are stored", count(stored)),
            };
            let failure = Failure::usage(message);
            return Err(match too_long {
                true => failure.hint("--max-message-size allows longer ones, if the broker does"),
                false => failure,
            });
        }
        if sums.not_flushed > 0 {
            faults.push(format!(
                "{} are stored, but not flushed or replicated in time",
                count(sums.not_flushed)
            ));
        }
        Ok(Document::new()
            .field("topic", "Topic", Cell::text(&self.topic))
            .field("stored", "Stored", Cell::Count(sums.stored))
            .field("failed", "Failed", Cell::Count(sums.failed))
            .field("bytes", "Bytes", Cell::Bytes(sums.bytes))
            .field("seconds", "Seconds", Cell::Json(serde_json::json!(seconds)))
            .faults(faults))
    }
}

/// Lines of the input with their numbers, read by a thread of their own: an input that says nothing
/// holds up nobody. Ends at the end, or with the first line that is no message.
fn read_ahead(
    mut lines: Lines<Box<dyn BufRead + Send>>,
) -> Receiver<(u64, Result<Line, LineFault>)> {
    let (ahead, inbox) = mpsc::sync_channel(LINES_AHEAD);
    std::thread::spawn(move || {
        while let Some(line) = lines.next().transpose() {
            let is_wrong = line.is_err();
            if ahead.send((lines.number(), line)).is_err() || is_wrong {
                break;
            }
        }
    });
    inbox
}

/// A send that is over: the number of its line, its bytes, and what it came to.
type Settled = (u64, usize, Result<SendResult, Error>);

/// Messages that are under way, and what has become of the others.
struct Sends {
    sums: Sums,
    under_way: usize,
    sender: Sender<Settled>,
    settled: Receiver<Settled>,
    progress: ProgressBar,
}

impl Sends {
    fn new(progress: ProgressBar) -> Sends {
        let (sender, settled) = mpsc::channel();
        Sends {
            sums: Sums::default(),
            under_way: 0,
            sender,
            settled,
            progress,
        }
    }

    fn begin(&mut self, producer: &Producer, line: u64, request: (usize, SendRequest)) {
        let (bytes, request) = request;
        let sender = self.sender.clone();
        self.under_way += 1;
        producer.send_with(request, move |result| {
            // Nobody hears of it where the command has ended.
            let _ = sender.send((line, bytes, result));
        });
    }

    /// Takes over what has become of messages; waits for the first so long.
    fn settle(&mut self, wait: Duration) {
        let mut next = self.settled.recv_timeout(wait).ok();
        while let Some(settled) = next {
            self.take(settled);
            next = self.settled.try_recv().ok();
        }
    }

    fn take(&mut self, (line, bytes, result): Settled) {
        self.under_way -= 1;
        let sums = &mut self.sums;
        match result {
            Ok(result) => {
                sums.stored += 1;
                sums.bytes = sums.bytes.saturating_add(bytes as i64);
                sums.not_flushed += i64::from(result.status != SendStatus::SendOk);
            }
            Err(error) => {
                sums.failed += 1;
                sums.first_failure.get_or_insert_with(|| {
                    let failure = failure(&error);
                    Failure {
                        message: format!("line {line}: {}", failure.message),
                        ..failure
                    }
                });
            }
        }
        let per_second = sums.stored as f64 / self.progress.elapsed().as_secs_f64().max(0.001);
        let message = format!("{} stored, {}", count(sums.stored), rate(per_second));
        self.progress.inc(bytes as u64 + 1);
        self.progress.set_message(message);
    }

    /// Waits for all.
    fn end(mut self) -> Sums {
        // Only those that are under way can tell of something now.
        self.sender = mpsc::channel().0;
        while let Ok(settled) = self.settled.recv() {
            self.take(settled);
        }
        self.progress.finish_and_clear();
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("a").is_err() && pair("=b").is_err() && pair("a=").is_err());
        assert_eq!(queue("h:1:5"), Ok(("h:1".into(), 5)));
        assert!(queue("b").is_err() && queue(":1").is_err() && queue("b:-1").is_err());
        assert!(per_second("0").is_err() && per_second("nan").is_err());
        assert_eq!(per_second("0.5"), Ok(0.5));
    }
}
