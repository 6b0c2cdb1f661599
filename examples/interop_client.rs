//! A process full of producers and consumers of this library that does what it is told: one
//! JSON object a line on standard input, answers and messages received on standard output.
//! `interop_client NAMESRV`. What it understands is in `tests/interop/README.md`.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringmq::client::Outcome as Consumed;
use ringmq::client::settings::{AllocateStrategy, Compression, Listening};
use ringmq::client::{
    Batch, ClientSettings, Message, MessageQueue, Producer, ProducerSettings, PullConsumer,
    PullConsumerSettings, PushConsumer, PushConsumerSettings, ReceivedMessage, SendResult,
};
use ringmq::wire::body::heartbeat::{ConsumeFromWhere, MessageModel};
use serde_json::{Map, Value, json};

/// What went wrong, in words: it goes back as the answer's `error`.
type Outcome<T> = Result<T, String>;

struct Peer {
    namesrv: String,
    producers: Mutex<HashMap<String, Producer>>,
    consumers: Mutex<HashMap<String, (PushConsumer, String)>>,
    pollers: Mutex<HashMap<String, Poller>>,
}

/// A pull consumer that is polled without a pause.
struct Poller {
    consumer: PullConsumer,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<()>>,
}

fn main() {
    let Some(namesrv) = std::env::args().nth(1) else {
        eprintln!("interop_client NAMESRV");
        std::process::exit(2);
    };
    let peer = Arc::new(Peer {
        namesrv,
        producers: Mutex::default(),
        consumers: Mutex::default(),
        pollers: Mutex::default(),
    });
    for line in stdin().lock().lines().map_while(Result::ok) {
        let request: Value = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("{line:?} is no JSON: {error}");
                std::process::exit(2);
            }
        };
        let peer = peer.clone();
        std::thread::spawn(move || {
            let mut answer = peer.handle(&request).unwrap_or_else(|error| {
                eprintln!("{request}: {error}");
                json!({ "error": error })
            });
            answer["id"] = request["id"].clone();
            print(&answer);
        });
    }
    // Nobody asks any more: whoever started this has ended.
    std::process::exit(0);
}

fn print(line: &Value) {
    let mut out = stdout().lock();
    // Whoever reads may have ended, which ends the input, too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(error: impl Display) -> String {
    error.to_string()
}

fn text<'a>(request: &'a Value, key: &str) -> Outcome<&'a str> {
    let value = request[key].as_str();
    value.ok_or_else(|| format!("{key} is missing in {request}"))
}

impl Peer {
    fn client(&self, name: &str) -> ClientSettings {
        let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
        ClientSettings {
            instance_name: Some(name.to_owned()),
            offset_store_dir: Some(home.join("offsets")),
            ..ClientSettings::with_name_servers(&self.namesrv)
        }
    }

    fn handle(&self, request: &Value) -> Outcome<Value> {
        match text(request, "do")? {
            "producer" => self.start_producer(request).map(|()| json!({})),
            "send" => Ok(json!({ "sent": self.send(request)? })),
            "push" if request["mode"] == "pull" => self.start_poller(request).map(|()| json!({})),
            "push" => self.start_consumer(request).map(|()| json!({})),
            "queues" => Ok(json!({ "queues": self.queues(text(request, "name")?)? })),
            "close" => self.close(text(request, "name")?).map(|()| json!({})),
            other => Err(format!("unknown request {other}")),
        }
    }

    fn start_producer(&self, request: &Value) -> Outcome<()> {
        let name = text(request, "name")?;
        let settings = ProducerSettings {
            send_timeout_ms: 20_000,
            compress_body_over: request["compressOver"].as_u64().unwrap_or(4096) as usize,
            compression: match request["compression"].as_str() {
                None | Some("ZLIB") => Compression::Zlib,
                Some("LZ4") => Compression::Lz4,
                Some("ZSTD") => Compression::Zstd,
                Some(other) => return Err(format!("unknown compression {other}")),
            },
            ..ProducerSettings::new(text(request, "group")?)
        };
        let producer = Producer::start(&self.client(name), settings).map_err(say)?;
        locked(&self.producers).insert(name.to_owned(), producer);
        Ok(())
    }

    fn send(&self, request: &Value) -> Outcome<Vec<Value>> {
        let name = text(request, "name")?;
        let known = locked(&self.producers).get(name).cloned();
        let producer = known.ok_or_else(|| format!("no producer {name}"))?;
        let given = request["messages"].as_array().ok_or("no messages")?;
        let mut messages = given.iter().map(message).collect::<Outcome<Vec<_>>>()?;
        let send = |message| producer.send(message).map(result).map_err(say);
        match text(request, "how")? {
            "sync" => messages.into_iter().map(send).collect(),
            "key" => {
                let key = text(request, "key")?;
                let keyed = messages.drain(..).map(|each| each.sharding_key(key));
                keyed.map(send).collect()
            }
            "async" => {
                // All are on their way before the first answer is waited for.
                let futures: Vec<_> = messages
                    .into_iter()
                    .map(|each| producer.send_async(each))
                    .collect();
                let wait = |future| futures_lite::future::block_on(future);
                let results = futures.into_iter().map(wait);
                results.map(|sent| sent.map(result).map_err(say)).collect()
            }
            "oneway" => {
                for each in messages {
                    producer.send_one_way(each).map_err(say)?;
                }
                Ok(Vec::new())
            }
            "batch" => Ok(vec![result(producer.send(messages).map_err(say)?)]),
            other => Err(format!("unknown way to send: {other}")),
        }
    }

    fn start_consumer(&self, request: &Value) -> Outcome<()> {
        let (name, topic) = (text(request, "name")?, text(request, "topic")?);
        let orderly = request["mode"] == "orderly";
        let mut settings = PushConsumerSettings::new(text(request, "group")?);
        settings.consume_threads = 4;
        settings.suspend_current_queue_time_ms = 200;
        if orderly {
            settings.listening = Listening::Orderly;
        }
        if let Some(times) = request["maxReconsume"].as_i64() {
            settings.max_reconsume_times = times as i32;
        }
        settings.setup.consume_from_where = match request["from"].as_str() {
            Some("last") => ConsumeFromWhere::LastOffset,
            _ => ConsumeFromWhere::FirstOffset,
        };
        if request["model"] == "broadcasting" {
            settings.setup.message_model = MessageModel::Broadcasting;
        }
        settings.setup.allocate = match request["strategy"].as_str() {
            None | Some("AVG") => AllocateStrategy::Averagely,
            Some("AVG_BY_CIRCLE") => AllocateStrategy::AveragelyByCircle,
            Some("CONSISTENT_HASH") => AllocateStrategy::ConsistentHash { virtual_nodes: 10 },
            Some(other) => return Err(format!("unknown strategy {other}")),
        };
        let tags = request["tags"].as_str().unwrap_or("*");
        let subscriptions = [(topic, tags)];
        let client = self.client(name);
        let own = name.to_owned();
        // Orderly attempts so far, by message id.
        let attempts = Mutex::new(HashMap::<String, i32>::new());
        let listener = move |batch: &Batch| {
            let mut good = true;
            for message in &batch.messages {
                let fail = report(&own, message);
                let mut before = message.reconsume_times;
                if orderly && fail > 0 {
                    let mut attempts = locked(&attempts);
                    let count = attempts.entry(message.message_id()).or_default();
                    before = *count;
                    *count += 1;
                }
                good &= before >= fail;
            }
            match (good, orderly) {
                (true, _) => Consumed::Success { ack_index: None },
                (false, true) => Consumed::SuspendCurrentQueue { pause_ms: None },
                (false, false) => Consumed::ReconsumeLater { delay_level: 1 },
            }
        };
        let consumer =
            PushConsumer::start(&client, settings, subscriptions, listener).map_err(say)?;
        let known = (consumer, topic.to_owned());
        locked(&self.consumers).insert(name.to_owned(), known);
        Ok(())
    }

    fn start_poller(&self, request: &Value) -> Outcome<()> {
        let (name, topic) = (text(request, "name")?, text(request, "topic")?);
        let mut settings = PullConsumerSettings::new(text(request, "group")?);
        settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
        let client = self.client(name);
        let consumer = PullConsumer::start(&client, settings, [(topic, "*")]).map_err(say)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (polled, stopped, own) = (consumer.clone(), stop.clone(), name.to_owned());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let messages = polled.poll(Duration::from_millis(300));
                for message in messages.map_err(say)? {
                    report(&own, &message);
                }
            }
            Ok(())
        });
        let poller = Poller {
            consumer,
            stop,
            thread,
        };
        locked(&self.pollers).insert(name.to_owned(), poller);
        Ok(())
    }

    fn queues(&self, name: &str) -> Outcome<Vec<String>> {
        let polled = locked(&self.pollers)
            .get(name)
            .map(|poller| poller.consumer.clone());
        let (queues, topic) = if let Some(consumer) = polled {
            (consumer.assignment(), None)
        } else {
            let known = locked(&self.consumers).get(name).cloned();
            let (consumer, topic) = known.ok_or_else(|| format!("no consumer {name}"))?;
            (consumer.assignment(), Some(topic))
        };
        let queues = queues.wait().map_err(say)?;
        let is_own =
            |queue: &&MessageQueue| topic.as_deref().is_none_or(|topic| *queue.topic == *topic);
        let own = queues.iter().filter(is_own);
        Ok(own
            .map(|queue| format!("{}:{}", queue.broker_name, queue.queue_id))
            .collect())
    }

    fn close(&self, name: &str) -> Outcome<()> {
        let producer = locked(&self.producers).remove(name);
        if let Some(producer) = producer {
            producer.shutdown().map_err(say)?;
        }
        let poller = locked(&self.pollers).remove(name);
        if let Some(poller) = poller {
            poller.stop.store(true, Ordering::Relaxed);
            poller.thread.join().map_err(|_| "the poll panicked")??;
            poller.consumer.commit().wait().map_err(say)?;
            poller.consumer.shutdown().map_err(say)?;
        }
        let consumer = locked(&self.consumers).remove(name);
        if let Some((consumer, _)) = consumer {
            consumer.shutdown().map_err(say)?;
        }
        Ok(())
    }
}

fn message(given: &Value) -> Outcome<Message> {
    let mut message = Message::new(text(given, "topic")?, unhex(text(given, "body")?)?);
    if let Some(tag) = given["tags"].as_str() {
        message = message.tag(tag);
    }
    if let Some(keys) = given["keys"].as_str() {
        message = message.keys(keys.split(' '));
    }
    for (name, value) in given["properties"].as_object().unwrap_or(&Map::new()) {
        message = message.property(name, value.as_str().unwrap_or_default());
    }
    let number = |key: &str| given[key].as_i64().unwrap_or(0);
    Ok(message
        .flag(number("flag") as i32)
        .delay_level(number("delay") as u32))
}

fn result(result: SendResult) -> Value {
    json!({
        "status": result.status.name(),
        "id": result.message_id.as_str(),
        "offsetId": result.offset_message_id.as_str(),
        "broker": &*result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    })
}

fn event(name: &str, message: &ReceivedMessage) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let properties: Map<String, Value> = message
        .properties()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    json!({
        "event": "message",
        "name": name,
        "topic": message.topic(),
        "broker": &*message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "msgId": message.message_id(),
        "body": hex(message.body()),
        "tags": message.tag(),
        "keys": message.property("KEYS"),
        "flag": message.flag,
        "bornHost": message.born.host.ip().to_string(),
        "reconsumeTimes": message.reconsume_times,
        "properties": properties,
        "at": since.unwrap_or(Duration::ZERO).as_millis() as u64,
    })
}

/// Reports a message; how many of its attempts are to fail, as its property `fail` says.
fn report(name: &str, message: &ReceivedMessage) -> i32 {
    print(&event(name, message));
    let fail = message.property("fail").and_then(|text| text.parse().ok());
    fail.unwrap_or(0)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |four: u8| char::from(DIGITS[usize::from(four)]);
    let pair = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(pair).collect()
}

fn unhex(text: &str) -> Outcome<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes = pairs.map(byte).collect::<Option<Vec<u8>>>();
    bytes.ok_or_else(|| "a body is not hexadecimal".to_owned())
}
