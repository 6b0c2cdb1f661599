//! What a store must hold, kept as the plainest data there is, and the record
//! format written a second time from the protocol's table.

use std::net::SocketAddr;

use super::Dice;
use crate::store::index::tests::model::hash;
use crate::wire::message::{Parts, body_crc};

/// The queues that histories use: topic and queue number.
pub const QUEUES: [(&str, i32); 7] = [
    ("T", 0),
    ("T", 1),
    ("T", 7),
    ("%RETRY%group-a", 0),
    ("SCHEDULE_TOPIC_XXXX", 1),
    (LONG_TOPIC, 0),
    (LONG_TOPIC, 3),
];

/// 130 bytes: its records are of version 2.
const LONG_TOPIC: &str = "long-topic-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-\
    0123456789-0123456789-0123456789-0123456789-012345678";

/// A message before it has its place.
#[derive(Clone, Debug)]
pub struct Spec {
    pub queue: usize,
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: SocketAddr,
    pub store_host: SocketAddr,
    pub reconsume_times: i32,
    pub prepared_offset: i64,
    pub body: Vec<u8>,
    pub properties: Vec<u8>,
    tag: Option<String>,
    delay: Option<i64>,
    /// Keys that it is found by.
    keys: Vec<String>,
}

impl Spec {
    /// A message with a body of `len` bytes and everything else at random.
    pub fn random(queue: usize, len: usize, dice: &mut Dice) -> Spec {
        let host = |dice: &mut Dice| {
            let port = dice.next() as u16;
            let ip = if dice.below(3) == 0 {
                std::net::IpAddr::from(<[u8; 16]>::try_from(dice.bytes(16)).unwrap())
            } else {
                std::net::IpAddr::from(<[u8; 4]>::try_from(dice.bytes(4)).unwrap())
            };
            SocketAddr::new(ip, port)
        };
        let mut properties = Vec::new();
        let mut tag = None;
        if dice.below(2) == 0 {
            let text = format!("Tag{}", dice.below(1000));
            properties.extend_from_slice(format!("TAGS\u{1}{text}\u{2}").as_bytes());
            tag = Some(text);
        }
        let mut delay = None;
        if dice.below(3) == 0 {
            let level = dice.below(6) as i64;
            properties.extend_from_slice(format!("DELAY\u{1}{level}\u{2}").as_bytes());
            delay = (level > 0).then_some(level);
        }
        let transaction = [0, 0, 0, 0x4, 0x8, 0xC][dice.below(6) as usize];
        let mut keys = Vec::new();
        if dice.below(3) > 0 {
            keys.push(format!("unique {}", dice.next()));
            properties.extend_from_slice(format!("UNIQ_KEY\u{1}{}\u{2}", keys[0]).as_bytes());
        }
        let words: Vec<String> = (0..dice.below(4))
            .map(|_| format!("Schlüssel-{}", dice.below(40)))
            .collect();
        if !words.is_empty() {
            properties.extend_from_slice(format!("KEYS\u{1}{}\u{2}", words.join("  ")).as_bytes());
            keys.extend(words);
        }
        // A body of zeros looks like clear space to whoever looks too little.
        let body = if dice.below(5) == 0 {
            vec![0; len]
        } else {
            dice.bytes(len)
        };
        Spec {
            queue,
            flag: dice.next() as i32,
            sys_flag: transaction | 0x1,
            born_timestamp: dice.next() as i64,
            born_host: host(dice),
            store_host: host(dice),
            reconsume_times: dice.below(20) as i32,
            prepared_offset: dice.next() as i64,
            body,
            properties,
            tag,
            delay,
            keys,
        }
    }

    pub fn topic(&self) -> &'static str {
        QUEUES[self.queue].0
    }

    pub fn queue_id(&self) -> i32 {
        QUEUES[self.queue].1
    }

    /// As the store takes it.
    pub fn parts(&self) -> Parts<'_> {
        Parts {
            queue_id: self.queue_id(),
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: self.born_timestamp,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_offset: self.prepared_offset,
            body: &self.body,
            body_crc: body_crc(&self.body),
            topic: self.topic().as_bytes(),
            properties: &self.properties,
        }
    }

    /// Whether it gets an entry: prepared and rolled-back messages do not.
    pub fn is_queued(&self) -> bool {
        matches!(self.sys_flag & 0xC, 0 | 0x8)
    }

    /// What its keys are indexed by: rolled-back messages are not.
    pub fn key_hashes(&self) -> Vec<i32> {
        let keys = self.keys.iter().filter(|_| self.sys_flag & 0xC != 0xC);
        keys.map(|key| hash(self.topic(), key)).collect()
    }

    /// The tags code of its entry.
    pub fn tags_code(&self, now_ms: i64) -> i64 {
        if self.topic() == "SCHEDULE_TOPIC_XXXX" {
            if let Some(level) = self.delay {
                return now_ms + [1000, 5000, 10_000][(level.min(3) - 1) as usize];
            }
        }
        let tag = self.tag.as_deref().unwrap_or_default();
        let hash = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
        i64::from(tag.encode_utf16().fold(0, hash))
    }

    /// The record, byte for byte as the protocol's table has it.
    pub fn record(&self, queue_offset: i64, physical: i64, now_ms: i64) -> Vec<u8> {
        let host = |host: SocketAddr| {
            let mut bytes = match host {
                SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
                SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
            };
            bytes.extend((i32::from(host.port())).to_be_bytes());
            bytes
        };
        let topic = self.topic().as_bytes();
        let v2 = topic.len() > 127;
        let mut sys_flag = self.sys_flag;
        sys_flag |= if self.born_host.is_ipv6() { 0x10 } else { 0 };
        sys_flag |= if self.store_host.is_ipv6() { 0x20 } else { 0 };
        let mut out = vec![0; 4];
        out.extend((if v2 { 0xDAA3_20AB_u32 } else { 0xDAA3_20A7 }).to_be_bytes());
        out.extend((crc32fast::hash(&self.body) & 0x7FFF_FFFF).to_be_bytes());
        out.extend(self.queue_id().to_be_bytes());
        out.extend(self.flag.to_be_bytes());
        out.extend(queue_offset.to_be_bytes());
        out.extend(physical.to_be_bytes());
        out.extend(sys_flag.to_be_bytes());
        out.extend(self.born_timestamp.to_be_bytes());
        out.extend(host(self.born_host));
        out.extend(now_ms.to_be_bytes());
        out.extend(host(self.store_host));
        out.extend(self.reconsume_times.to_be_bytes());
        out.extend(self.prepared_offset.to_be_bytes());
        out.extend((self.body.len() as i32).to_be_bytes());
        out.extend(&self.body);
        if v2 {
            out.extend((topic.len() as i16).to_be_bytes());
        } else {
            out.push(topic.len() as u8);
        }
        out.extend(topic);
        out.extend((self.properties.len() as i16).to_be_bytes());
        out.extend(&self.properties);
        let len = (out.len() as i32).to_be_bytes();
        out[..4].copy_from_slice(&len);
        out
    }
}

/// A record that was appended.
#[derive(Clone, Debug)]
pub struct Stored {
    pub queue: usize,
    pub queued: bool,
    pub position: u64,
    pub bytes: Vec<u8>,
    pub tags_code: i64,
    /// Hashes of its keys.
    pub keys: Vec<i32>,
    pub stored_at: i64,
    /// End of the run of records that it was appended with.
    pub run_end: u64,
}

impl Stored {
    pub fn end(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}

/// One queue: entry *n* is queue offset *n*.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// Indexes into [`Model::log`].
    pub log_index: Vec<usize>,
    /// Entries below this one belong to a removed topic: they need not be there,
    /// but if they are they must be right.
    pub required: usize,
    /// The topic was removed and nothing was appended since.
    pub removed: bool,
}

/// What the store holds.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub log: Vec<Stored>,
    pub queues: [Entries; QUEUES.len()],
    /// Everything in front of it was acknowledged, or promised otherwise.
    pub written: u64,
    pub clock_ms: i64,
    /// A topic was removed at some time.
    pub removals: bool,
    /// Position in front of which segments may have been deleted.
    pub deleted: u64,
}

impl Model {
    pub fn add(&mut self, stored: Stored) {
        if stored.queued {
            self.queues[stored.queue].log_index.push(self.log.len());
        }
        self.log.push(stored);
    }

    /// The log ends at `end` now: what lay behind is gone.
    pub fn cut(&mut self, end: u64) {
        self.log.retain(|stored| stored.position < end);
        for stored in self
            .log
            .iter_mut()
            .rev()
            .take_while(|stored| stored.run_end > end)
        {
            stored.run_end = end;
        }
        let len = self.log.len();
        for queue in &mut self.queues {
            queue.log_index.retain(|&index| index < len);
            queue.required = queue.required.min(queue.log_index.len());
        }
        self.written = end;
    }

    pub fn remove_topic(&mut self, topic: &str) {
        self.removals = true;
        for (queue, _) in self
            .queues
            .iter_mut()
            .zip(QUEUES)
            .filter(|(_, (name, _))| *name == topic)
        {
            queue.required = queue.log_index.len();
            queue.removed = !queue.log_index.is_empty();
        }
    }

    /// End of the last record that lies in front of `position` as a whole.
    pub fn whole(&self, position: u64) -> u64 {
        let ends = self.log.iter().rev().map(Stored::end);
        ends.into_iter().find(|&end| end <= position).unwrap_or(0)
    }

    /// The log begins at `min` now: entries of messages in front of it need not be there.
    pub fn begins_at(&mut self, min: u64) {
        for queue in &mut self.queues {
            let gone = |index: &&usize| self.log[**index].position < min;
            let gone = queue.log_index.iter().take_while(gone).count();
            queue.required = queue.required.max(gone);
        }
    }

    /// The queue began again at offset 0 after its topic was removed.
    pub fn restart_queue(&mut self, queue: usize) {
        self.queues[queue] = Entries::default();
    }

    pub fn stored(&self, queue: usize, offset: u64) -> Option<&Stored> {
        let index = *self.queues[queue].log_index.get(offset as usize)?;
        Some(&self.log[index])
    }
}
