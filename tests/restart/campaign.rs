//! Many rounds of load, kill and check on one store: what was acknowledged and what
//! was read stays as it was, over every restart.
//!
//! `RINGMQ_CASES` multiplies the rounds; `RINGMQ_SEED` is added to the seeds, which are
//! printed with what each round does.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Pull, Record, Send, Server, body, max_offset, min_offset, topic};
use crate::crash::config;

/// Rounds of one test.
const ROUNDS: u64 = 9;

/// Topics and their queues.
const TOPICS: [(&str, i32); 3] = [("One", 1), ("Two", 2), ("Four", 4)];

/// Requests that a producer has under way.
const WINDOW: usize = 8;

/// Numbers that a request takes: more than the messages of a batch.
const NUMBERS: u64 = 16;

/// Rounds after which everything is read from the start; between them only what is new,
/// and a little in front of it.
const FULL_EVERY: u64 = 4;
const AGAIN: i64 = 300;

/// A queue, as an index into all of them, and an offset.
type Place = (usize, i64);

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        let mut dice = Dice((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        dice.between(0, 1);
        dice
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low)
    }
}

/// All queues: topic and number.
fn queues() -> Vec<(&'static str, i32)> {
    let each = |&(name, count): &(&'static str, i32)| (0..count).map(move |id| (name, id));
    TOPICS.iter().flat_map(each).collect()
}

/// One request, told by the first of its numbers alone: where it goes and what is in it.
struct Order {
    queue: usize,
    messages: u64,
    one_way: bool,
}

impl Order {
    fn of(first: u64) -> Order {
        let turn = first / NUMBERS;
        let mixed = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Order {
            queue: (mixed % queues().len() as u64) as usize,
            messages: if turn % 5 == 0 { 2 + turn / 5 % 9 } else { 1 },
            one_way: turn % 23 == 7,
        }
    }
}

/// The body of a message.
fn content(number: u64) -> Vec<u8> {
    let bytes = match number / NUMBERS % 97 {
        13 => 20_000,
        _ => 60 + (number * 37 % 2000) as usize,
    };
    body("m", number, bytes)
}

fn number_of(content: &[u8]) -> u64 {
    let mut parts = content.split(|&byte| byte == b':');
    assert_eq!(parts.next(), Some(&b"m"[..]), "a foreign message");
    let digits = parts.next().expect("a number");
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// What has been promised so far.
#[derive(Default)]
struct Promises {
    /// Message at every place that was acknowledged.
    acknowledged: BTreeMap<Place, u64>,
    /// Message at every place that was read or acknowledged.
    known: BTreeMap<Place, u64>,
    /// Where a message is.
    places: HashMap<u64, Place>,
}

impl Promises {
    /// A place holds one message for good, and a message has one place.
    fn know(&mut self, place: Place, number: u64) {
        let before = *self.known.entry(place).or_insert(number);
        assert_eq!(before, number, "two messages at {place:?}");
        let before = *self.places.entry(number).or_insert(place);
        assert_eq!(before, place, "message {number} is at two places");
    }

    /// Offset behind the last known one of a queue.
    fn end(&self, queue: usize) -> i64 {
        let mine = self.known.range((queue, 0)..(queue + 1, 0));
        mine.last().map_or(0, |((_, offset), _)| offset + 1)
    }
}

struct Campaign {
    name: String,
    queues: Vec<(&'static str, i32)>,
    next: AtomicU64,
    read: AtomicUsize,
    promises: Mutex<Promises>,
    /// Offset up to which each queue has been checked.
    checked: Mutex<Vec<i64>>,
}

impl Campaign {
    fn acknowledged(&self) -> usize {
        self.promises.lock().unwrap().acknowledged.len()
    }

    /// A record as it came out of a pull: whole, of this campaign, and in its place.
    fn look(&self, queue: usize, record: &Record) {
        let (name, id) = self.queues[queue];
        assert_eq!((record.topic.as_str(), record.queue_id), (name, id));
        let number = number_of(&record.body);
        assert!(
            number < self.next.load(Ordering::Relaxed),
            "message {number} was never sent"
        );
        let order = Order::of(number - number % NUMBERS);
        assert!(number % NUMBERS < order.messages, "message {number}");
        assert_eq!(order.queue, queue, "message {number} is in another queue");
        assert!(
            record.body == content(number),
            "message {number} is not as sent"
        );
        let mut promises = self.promises.lock().unwrap();
        promises.know((queue, record.queue_offset), number);
    }

    /// Sends until `ends`, or until the connection does.
    fn produce(&self, address: SocketAddr, ends: &AtomicBool) {
        let mut client = Client::connect(address);
        let mut open: VecDeque<(i32, u64)> = VecDeque::new();
        loop {
            while open.len() < WINDOW && !ends.load(Ordering::Relaxed) {
                let first = self.next.fetch_add(NUMBERS, Ordering::Relaxed);
                let order = Order::of(first);
                let (name, id) = self.queues[order.queue];
                let bodies: Vec<_> = (first..first + order.messages).map(content).collect();
                let send = match &bodies[..] {
                    [one] => Send::new(name, one.clone()),
                    _ => Send::batch(name, &bodies),
                };
                let mut request: ringmq::wire::command::Request = send.queue(id).into();
                if order.one_way {
                    request.fixed.flag |= 2;
                }
                let (frame, opaque) = client.frame(request);
                if client.raw(&frame).is_err() {
                    return;
                }
                if !order.one_way {
                    open.push_back((opaque, first));
                }
            }
            let Some((opaque, first)) = open.pop_front() else {
                return;
            };
            let Ok(reply) = client.answer(opaque) else {
                return;
            };
            assert_eq!(reply.code, 0, "{}", reply.remark);
            let order = Order::of(first);
            let offset = reply.int("queueOffset");
            let mut promises = self.promises.lock().unwrap();
            for n in 0..order.messages {
                let place = (order.queue, offset + n as i64);
                promises.know(place, first + n);
                let before = promises.acknowledged.insert(place, first + n);
                assert!(before.is_none(), "{place:?} was acknowledged twice");
            }
        }
    }

    /// Reads queues from somewhere in front of what is known on, until `ends` or the
    /// connection does.
    fn consume(&self, address: SocketAddr, ends: &AtomicBool, mut dice: Dice) {
        let mut client = Client::connect(address);
        let mut positions: Vec<i64> = (0..self.queues.len())
            .map(|queue| {
                let end = self.promises.lock().unwrap().end(queue);
                (end - dice.between(0, 100) as i64).max(0)
            })
            .collect();
        while !ends.load(Ordering::Relaxed) {
            let queue = dice.between(0, self.queues.len() as u64) as usize;
            let (name, id) = self.queues[queue];
            let pull = Pull::new(name, id, positions[queue]).suspend(20);
            let Ok(reply) = client.try_call(pull) else {
                return;
            };
            for record in reply.records() {
                assert_eq!(record.queue_offset, positions[queue], "a gap");
                self.look(queue, &record);
                positions[queue] += 1;
                self.read.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Loads while `meanwhile` runs.
    fn load(&self, address: SocketAddr, dice: &mut Dice, meanwhile: impl FnOnce(&mut Dice)) {
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| self.produce(address, &ends));
            }
            for _ in 0..2 {
                let dice = Dice::new(dice.between(0, 1 << 32));
                scope.spawn(|| self.consume(address, &ends, dice));
            }
            meanwhile(dice);
            ends.store(true, Ordering::Relaxed);
        });
    }

    /// Reads what is new since the last time, or everything: no gap, nothing foreign,
    /// nothing at two places, and all that was acknowledged or read where it was.
    fn verify(&self, server: &Server, full: bool) {
        let mut client = server.connect();
        let mut checked = self.checked.lock().unwrap();
        for (queue, &(name, id)) in self.queues.iter().enumerate() {
            assert_eq!(min_offset(&mut client, name, id), 0);
            let end = max_offset(&mut client, name, id);
            let known = self.promises.lock().unwrap().end(queue);
            assert!(
                end >= known,
                "{name} {id} ends at {end}, and offset {} was acknowledged or read",
                known - 1
            );
            let mut at = if full {
                0
            } else {
                (checked[queue] - AGAIN).max(0)
            };
            while at < end {
                let reply = client.call(Pull::new(name, id, at)).expect(0);
                for record in reply.records() {
                    assert_eq!(record.queue_offset, at, "a gap in {name} {id}");
                    self.look(queue, &record);
                    at += 1;
                }
            }
            checked[queue] = end;
        }
    }
}

/// What happens to the broker at the end of a round.
fn harm(server: &Server, campaign: &Campaign, dice: &mut Dice) -> String {
    let sleep = |millis| std::thread::sleep(Duration::from_millis(millis));
    let before = dice.between(20, 600);
    sleep(before);
    let freeze = dice.between(0, 4) == 0;
    if !freeze {
        server.kill();
        return format!("killed after {before} ms");
    }
    let frozen = dice.between(1000, 2000);
    server.signal(libc::SIGSTOP);
    sleep(frozen);
    if dice.between(0, 3) == 0 {
        server.kill();
        return format!("frozen after {before} ms and killed {frozen} ms later");
    }
    let acknowledged = campaign.acknowledged();
    server.signal(libc::SIGCONT);
    let thawed = Instant::now();
    // Its clients go on.
    while campaign.acknowledged() < acknowledged + 20 {
        assert!(
            thawed.elapsed() < Duration::from_secs(10),
            "no answers after SIGCONT"
        );
        sleep(1);
    }
    let after = dice.between(0, 300);
    sleep(after);
    server.kill();
    format!("frozen after {before} ms for {frozen} ms, killed {after} ms after its clients went on")
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

fn run(shards: u16, flush: &str) {
    let seed = number("RINGMQ_SEED").unwrap_or(0) + u64::from(shards) * 1000 + flush.len() as u64;
    let rounds = ROUNDS * number("RINGMQ_CASES").unwrap_or(1);
    let mut server = config(shards, flush).start();
    let mut client = server.connect();
    for (name, count) in TOPICS {
        topic(&mut client, name, count);
    }
    let campaign = Campaign {
        name: format!("{flush}, shards: {shards}"),
        queues: queues(),
        next: AtomicU64::new(0),
        read: AtomicUsize::new(0),
        promises: Mutex::default(),
        checked: Mutex::new(vec![0; queues().len()]),
    };
    for round in 1..=rounds {
        let mut dice = Dice::new(seed << 16 | round);
        let mut how = String::new();
        campaign.load(server.address(), &mut dice, |dice| {
            how = harm(&server, &campaign, dice);
        });
        println!(
            "{}, seed {seed}, round {round} of {rounds}: {how}; {} acknowledged, {} read",
            campaign.name,
            campaign.acknowledged(),
            campaign.read.load(Ordering::Relaxed)
        );
        server.start_again();
        campaign.verify(&server, round % FULL_EVERY == 0);
    }
    assert!(campaign.acknowledged() > 100 * rounds as usize);
    assert!(campaign.read.load(Ordering::Relaxed) > 100 * rounds as usize);
    assert_eq!(server.stop(), 0);
    server.start_again();
    campaign.verify(&server, true);
    println!("{}: {rounds} rounds, nothing lost", campaign.name);
}

#[test]
fn one_shard_async_flush() {
    run(1, "ASYNC_FLUSH");
}

#[test]
fn two_shards_async_flush() {
    run(2, "ASYNC_FLUSH");
}

#[test]
fn one_shard_sync_flush() {
    run(1, "SYNC_FLUSH");
}

#[test]
fn two_shards_sync_flush() {
    run(2, "SYNC_FLUSH");
}
