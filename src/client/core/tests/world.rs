//! The simulated world around a core.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::client::core::io::{
    Answer, Command, Input, Now, Outgoing, Output, PeerId, ProducerId, SendMode, Ticket,
};
use crate::client::core::producer::prepare::{SendOptions, prepare, prepare_batch};
use crate::client::core::producer::unique_key::UniqueKeys;
use crate::client::core::{Core, Random};
use crate::client::error::{Error, Result};
use crate::client::message::{Message, MessageQueue};
use crate::client::settings::{ClientSettings, ProducerSettings};
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};
use crate::wire::frame::{self, Split};
use crate::wire::header::{Header, Scratch};
use crate::wire::properties;
use crate::wire::send_header::SendHeader;

/// What a server does with what it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// What it should.
    #[default]
    Good,
    /// No connection is taken.
    Refuses,
    /// Everything is taken, nothing answered.
    Silent,
    /// Answers come late, but before the deadline, ms.
    Slow(u64),
    /// Answers come this late, ms, perhaps after the deadline; each comes twice.
    Doubles(u64),
    /// Answers with this code.
    Answers(i32),
    /// Stored, with a status.
    Stores(i32),
    /// Answers make no sense.
    Garbage,
    /// Answers lack their fields.
    Bare,
    /// Answers have the numbers of requests to others, or of none.
    Foreign,
    /// Closes the connection in the middle of an answer.
    Closes,
    /// Stores and closes without an answer.
    StoresAndCloses,
}

/// A broker or nameserver.
#[derive(Debug, Default)]
pub struct Server {
    pub mood: Mood,
    /// Requests of the first code are answered with the second.
    pub refuses: Option<(i32, i32)>,
    /// With this chance of 256 each request meets a mood of `mixed` instead.
    pub mixed: Vec<Mood>,
    pub mixed_chance: u8,
    /// Messages by unique key, with how often each was stored.
    pub stored: HashMap<String, u32>,
    /// Codes of requests in order, the newest last.
    pub asked: VecDeque<i32>,
    /// Sends in order: topic, queue, properties and body.
    pub sends: Vec<(String, i32, Vec<u8>, Vec<u8>)>,
    /// Sends on a connection that began without a heartbeat.
    pub unheard: u32,
}

/// A route that nameservers know.
#[derive(Clone, Debug)]
pub struct RouteOf {
    pub brokers: Vec<(String, String)>,
    pub queues: i32,
}

struct Link {
    address: Arc<str>,
    open: bool,
    out: Vec<u8>,
    inbox: Vec<u8>,
    heard_heartbeat: bool,
}

enum Event {
    Connected(PeerId),
    Refused(PeerId),
    Bytes(PeerId, Vec<u8>),
    Closed(PeerId),
    Wake,
}

/// How a send ended.
#[derive(Debug)]
pub struct Ended {
    pub at: u64,
    pub result: Result<Answer>,
}

pub struct World {
    pub core: Core,
    pub now: Now,
    pub servers: BTreeMap<String, Server>,
    /// What nameservers know, by topic.
    pub routes: BTreeMap<String, RouteOf>,
    /// What nameservers answer instead, by topic.
    pub lies: BTreeMap<String, Vec<u8>>,
    pub random: Random,
    pub ended: BTreeMap<Ticket, Ended>,
    pub begun: BTreeMap<Ticket, (u64, String)>,
    pub outputs: Vec<Output>,
    pub connects: u32,
    pub published: Vec<(Arc<str>, usize)>,
    pub stopped: bool,
    links: HashMap<PeerId, Link>,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    next_ticket: u64,
    keys: UniqueKeys,
    pub settings: Arc<ProducerSettings>,
    pub turns: u64,
    /// Most bytes of one network read; 0: all at once.
    pub chunk: usize,
    /// Requests of late: whom, and their number.
    recent: VecDeque<(String, i32)>,
}

pub const NAME_SERVER: &str = "ns:9876";
pub const PRODUCER: ProducerId = ProducerId(1);

impl World {
    pub fn new(seed: u64, name_servers: &str) -> World {
        let now = Now {
            at: 1_000_000,
            wall: 1_700_000_000_000,
        };
        let mut settings = ClientSettings::with_name_servers(name_servers);
        settings.instance_name = Some("sim".into());
        let core = Core::with_seed(settings.clone(), now, seed).unwrap();
        let mut world = World {
            core,
            now,
            servers: BTreeMap::new(),
            routes: BTreeMap::new(),
            lies: BTreeMap::new(),
            random: Random(seed ^ 0x5EED),
            ended: BTreeMap::new(),
            begun: BTreeMap::new(),
            outputs: Vec::new(),
            connects: 0,
            published: Vec::new(),
            stopped: false,
            links: HashMap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            next_ticket: 0,
            keys: UniqueKeys::new([10, 0, 0, 1].into(), 1, seed as u32),
            settings: Arc::new(ProducerSettings::new("g")),
            turns: 0,
            chunk: 0,
            recent: VecDeque::new(),
        };
        for address in name_servers.split(';') {
            world.servers.insert(address.to_owned(), Server::default());
        }
        world
    }

    /// A world with one nameserver and brokers `a`, `b`, … that have the topic `t`.
    pub fn with_brokers(seed: u64, brokers: usize, settings: ProducerSettings) -> World {
        let mut world = World::new(seed, NAME_SERVER);
        let names = (0..brokers).map(|n| char::from(b'a' + n as u8).to_string());
        let brokers: Vec<_> = names
            .map(|name| (name.clone(), format!("{name}:1")))
            .collect();
        for (_, address) in &brokers {
            world.servers.insert(address.clone(), Server::default());
        }
        let route = RouteOf { brokers, queues: 4 };
        world.routes.insert("t".into(), route);
        world.start(settings);
        world
    }

    pub fn start(&mut self, settings: ProducerSettings) {
        self.settings = Arc::new(settings);
        let ticket = self.ticket();
        let settings = self.settings.clone();
        self.command(Command::StartProducer {
            ticket,
            producer: PRODUCER,
            settings,
        });
        assert!(self.ended.remove(&ticket).unwrap().result.is_ok());
    }

    pub fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    pub fn server(&mut self, address: &str) -> &mut Server {
        self.servers.get_mut(address).unwrap()
    }

    pub fn command(&mut self, command: Command) {
        self.input(Input::Command(command));
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.core.handle(self.now, input, &mut out);
        self.carry_out(out);
    }

    pub fn prepared(&self, message: Message, mode: SendMode) -> Box<Outgoing> {
        self.prepared_to(message, mode, None)
    }

    pub fn prepared_to(
        &self,
        message: Message,
        mode: SendMode,
        queue: Option<MessageQueue>,
    ) -> Box<Outgoing> {
        let options = SendOptions {
            queue,
            mode,
            began: self.now.at,
            timeout_ms: None,
            wall_ms: self.now.wall,
        };
        prepare(message, &self.settings, &self.keys, options).unwrap()
    }

    pub fn send(&mut self, message: Message) -> Ticket {
        let send = self.prepared(message, SendMode::Sync);
        self.send_prepared(send)
    }

    /// Sends messages as one batch; the ids of its messages, too.
    pub fn send_batch(&mut self, messages: Vec<Message>) -> (Ticket, Vec<String>) {
        let options = SendOptions {
            queue: None,
            mode: SendMode::Sync,
            began: self.now.at,
            timeout_ms: None,
            wall_ms: self.now.wall,
        };
        let send = prepare_batch(messages, &self.settings, &self.keys, options).unwrap();
        let ids = send.message_id.split(',').map(str::to_owned).collect();
        (self.send_prepared(send), ids)
    }

    pub fn send_prepared(&mut self, send: Box<Outgoing>) -> Ticket {
        let ticket = self.ticket();
        self.begun
            .insert(ticket, (self.now.at, send.message_id.to_string()));
        self.command(Command::Send {
            ticket,
            producer: PRODUCER,
            send,
        });
        ticket
    }

    /// Sends and lets time pass until the end.
    pub fn sent(&mut self, message: Message) -> Result<Answer> {
        let ticket = self.send(message);
        self.end_of(ticket)
    }

    pub fn end_of(&mut self, ticket: Ticket) -> Result<Answer> {
        for _ in 0..100_000 {
            if let Some(ended) = self.ended.get(&ticket) {
                return ended.result.clone();
            }
            self.step();
        }
        panic!("{ticket:?} never ends");
    }

    pub fn error_of(&mut self, ticket: Ticket) -> Error {
        self.end_of(ticket).unwrap_err()
    }

    /// Lets `ms` pass.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now.at + ms;
        self.after(ms, Event::Wake);
        while self.now.at < until {
            self.step();
        }
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.next_event += 1;
        self.events
            .insert((self.now.at + ms, self.next_event), event);
    }

    /// Goes on to whatever happens next.
    pub fn step(&mut self) {
        self.turns += 1;
        let wake = self.core.wake_at();
        let event = self.events.first_key_value().map(|(&(at, _), _)| at);
        let Some(next) = event
            .into_iter()
            .chain((wake != u64::MAX).then_some(wake))
            .min()
        else {
            panic!("nothing will ever happen");
        };
        if next > self.now.at {
            self.now.wall += (next - self.now.at) as i64;
            self.now.at = next;
        }
        if event.is_some_and(|at| at <= self.now.at) {
            let (_, event) = self.events.pop_first().unwrap();
            self.happen(event);
        } else {
            self.input(Input::Tick);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Connected(peer) => {
                if let Some(link) = self.links.get_mut(&peer) {
                    link.open = true;
                    self.input(Input::Connected { peer });
                }
            }
            Event::Refused(peer) => {
                if self.links.remove(&peer).is_some() {
                    let why = "refused".to_owned();
                    self.input(Input::Disconnected { peer, why });
                }
            }
            Event::Closed(peer) => {
                if self.links.remove(&peer).is_some() {
                    let why = "closed by the peer".to_owned();
                    self.input(Input::Disconnected { peer, why });
                }
            }
            Event::Bytes(peer, bytes) => self.bytes(peer, bytes),
            Event::Wake => {}
        }
    }

    fn bytes(&mut self, peer: PeerId, bytes: Vec<u8>) {
        let size = if self.chunk == 0 {
            bytes.len().max(1)
        } else {
            self.chunk
        };
        for chunk in bytes.chunks(size) {
            let Some(link) = self.links.get_mut(&peer) else {
                return;
            };
            link.inbox.extend_from_slice(chunk);
            let inbox = std::mem::take(&mut link.inbox);
            let mut out = Vec::new();
            let used = self.core.received(self.now, peer, &inbox, &mut out);
            assert!(used <= inbox.len());
            if let Some(link) = self.links.get_mut(&peer) {
                link.inbox = inbox[used..].to_vec();
            }
            self.carry_out(out);
        }
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Connect { peer, address } => {
                    self.connects += 1;
                    let mood = self.servers.get(&*address).map(|server| server.mood);
                    let link = Link {
                        address,
                        open: false,
                        out: Vec::new(),
                        inbox: Vec::new(),
                        heard_heartbeat: false,
                    };
                    assert!(self.links.insert(peer, link).is_none(), "{peer} twice");
                    match mood {
                        None | Some(Mood::Refuses) => self.after(1, Event::Refused(peer)),
                        Some(_) => self.after(1, Event::Connected(peer)),
                    }
                }
                Output::Write { peer } => {
                    let link = self.links.get_mut(&peer).expect("a live link");
                    assert!(link.open, "written before it is open");
                    self.core.take_frames(peer, &mut link.out);
                    self.read(peer);
                }
                Output::Close { peer, .. } => {
                    self.links.remove(&peer).expect("a live link");
                }
                Output::Done { ticket, result } => {
                    let at = self.now.at;
                    let before = self.ended.insert(ticket, Ended { at, result });
                    assert!(before.is_none(), "{ticket:?} ends twice");
                }
                Output::PublishQueues { topic, queues } => {
                    self.published.push((topic, queues.len()));
                }
                Output::Stopped => self.stopped = true,
                other => self.outputs.push(other),
            }
        }
    }

    /// A server reads what was written to it.
    fn read(&mut self, peer: PeerId) {
        loop {
            let Some(link) = self.links.get_mut(&peer) else {
                return;
            };
            let address = link.address.clone();
            let Ok(Split::Frame(frame, used)) = frame::split(&link.out) else {
                return;
            };
            let mut scratch = Scratch::default();
            let header = Header::decode(&frame, &mut scratch).unwrap();
            let asked = Request::from_header(&frame, &header);
            link.out.drain(..used);
            if asked.fixed.is_response() {
                continue;
            }
            if asked.fixed.code == request::HEART_BEAT {
                link.heard_heartbeat = true;
            }
            let heard = link.heard_heartbeat;
            self.serve(peer, &address, asked, heard);
        }
    }

    fn serve(&mut self, peer: PeerId, address: &str, asked: Request, heard: bool) {
        let chance = (self.random.next() & 255) as u8;
        let pick = self.random.next() as usize;
        let Some(server) = self.servers.get_mut(address) else {
            return;
        };
        if self.recent.len() == 64 {
            self.recent.pop_front();
        }
        self.recent
            .push_back((address.to_owned(), asked.fixed.opaque));
        if server.asked.len() == 1_000 {
            server.asked.pop_front();
        }
        server.asked.push_back(asked.fixed.code);
        let (mut mood, refuses) = (server.mood, server.refuses);
        if !server.mixed.is_empty() && chance < server.mixed_chance {
            mood = server.mixed[pick % server.mixed.len()];
        }
        let is_send = matches!(asked.fixed.code, 310 | 320);
        if is_send && !heard {
            server.unheard += 1;
        }
        let stores = is_send
            && !matches!(
                mood,
                Mood::Refuses | Mood::Silent | Mood::Answers(_) | Mood::Garbage | Mood::Closes
            );
        let mut answer = if is_send {
            let count = server.sends.len() as i64;
            let (answer, stored) = store(&asked, count);
            if stores {
                *server.stored.entry(stored.0).or_default() += 1;
                server.sends.push(stored.1);
            }
            answer
        } else if asked.fixed.code == request::GET_ROUTEINFO_BY_TOPIC {
            self.route(asked.get("topic").unwrap())
        } else {
            Response::ok()
        };
        let (mut delay, mut opaque, mut times) = (1, asked.fixed.opaque, 1);
        match mood {
            Mood::Good => {
                if let Some((_, with)) = refuses.filter(|&(code, _)| code == asked.fixed.code) {
                    answer = Response::error(with, "refused");
                }
            }
            Mood::Slow(ms) => delay = ms,
            Mood::Doubles(ms) => (delay, times) = (ms, 2),
            Mood::Silent | Mood::Refuses => return,
            Mood::Answers(code) => answer = Response::error(code, "simulated"),
            Mood::Stores(code) => answer.code = code,
            Mood::Garbage => {
                let bytes = (0..60).map(|_| self.random.next() as u8).collect();
                return self.after(1, Event::Bytes(peer, bytes));
            }
            Mood::Bare => answer.ext.clear(),
            Mood::Foreign => {
                let others = self.recent.iter().filter(|(other, _)| *other != address);
                let others: Vec<i32> = others.map(|&(_, opaque)| opaque).collect();
                opaque = match others.len() {
                    0 => i32::MAX - (pick % 9) as i32,
                    count => others[pick % count],
                };
                // A number that both have in use cannot be told apart by anyone.
                if self
                    .recent
                    .iter()
                    .any(|(to, used)| to == address && *used == opaque)
                {
                    return;
                }
            }
            Mood::Closes => {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes, asked.serialize, opaque);
                bytes.truncate(bytes.len() / 2);
                self.after(1, Event::Bytes(peer, bytes));
                return self.after(1, Event::Closed(peer));
            }
            Mood::StoresAndCloses => return self.after(1, Event::Closed(peer)),
        }
        if asked.fixed.is_one_way() {
            return;
        }
        for _ in 0..times {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes, asked.serialize, opaque);
            self.after(delay, Event::Bytes(peer, bytes));
        }
    }

    fn route(&self, topic: &str) -> Response {
        if let Some(lie) = self.lies.get(topic) {
            return Response::body(lie.clone());
        }
        let Some(route) = self.routes.get(topic) else {
            return Response::error(response::TOPIC_NOT_EXIST, "no route");
        };
        let brokers = route.brokers.iter();
        let datas: Vec<_> = brokers
            .clone()
            .map(|(name, address)| {
                serde_json::json!({"brokerName": name, "brokerAddrs": {"0": address}})
            })
            .collect();
        let queues: Vec<_> = brokers
            .map(|(name, _)| {
                let nums = route.queues;
                serde_json::json!({
                    "brokerName": name, "perm": 6, "readQueueNums": nums, "writeQueueNums": nums,
                })
            })
            .collect();
        let body = serde_json::json!({"brokerDatas": datas, "queueDatas": queues});
        Response::body(body.to_string())
    }

    /// A request of a broker, by the connection to it.
    pub fn push(&mut self, address: &str, request: &Request) {
        let link = self
            .links
            .iter()
            .find(|(_, link)| &*link.address == address);
        let (&peer, _) = link.expect("a connection");
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.bytes(peer, bytes);
    }

    /// How often a message is stored on all brokers together.
    pub fn stored(&self, id: &str) -> u32 {
        let servers = self.servers.values();
        servers.filter_map(|server| server.stored.get(id)).sum()
    }

    /// How many sends all brokers together have seen stored.
    pub fn sends_at(&self, address: &str) -> usize {
        self.servers[address].sends.len()
    }
}

type Stored = (String, (String, i32, Vec<u8>, Vec<u8>));

fn store(asked: &Request, count: i64) -> (Response, Stored) {
    let mut bytes = Vec::new();
    asked.encode(&mut bytes);
    let Ok(Split::Frame(frame, _)) = frame::split(&bytes) else {
        panic!("encoded");
    };
    let mut scratch = Scratch::default();
    let header = Header::decode(&frame, &mut scratch).unwrap();
    let send = SendHeader::parse(&header).expect("a good send");
    let key = properties::get(send.properties, "UNIQ_KEY").unwrap_or_default();
    let key = String::from_utf8_lossy(key).into_owned();
    let answer = Response::ok()
        .with("msgId", format!("{count:032X}"))
        .with("queueId", send.queue_id)
        .with("queueOffset", count)
        .with("MSG_REGION", "DefaultRegion")
        .with("TRACE_ON", true);
    let stored = (
        send.topic.to_owned(),
        send.queue_id,
        send.properties.to_vec(),
        asked.body.to_vec(),
    );
    (answer, (key, stored))
}
