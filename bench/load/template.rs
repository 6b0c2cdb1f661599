//! Requests, prepared: what differs between two of them has a fixed width and is
//! written over.

use crate::bench::verify::stamp::Stamp;
use memchr::memmem;
use ringmq::wire::codes::request;
use ringmq::wire::frame::{PREFIX_BYTES, Serialize};
use ringmq::wire::header::{self, ExtWriter, FLAG_ONE_WAY, Fixed, VERSION};
use ringmq::wire::pull_header::pull_flag;

/// Numbers of requests have ten digits.
pub const OPAQUE_MIN: i32 = 1_000_000_000;

const OPAQUE: &str = "2147483647";
const BORN: &str = "9999999999999";
/// Hex digits of a unique key: run, producer, place, sequence.
const UNIQUE_KEY: &str = "FEDCBA9876543210FEDCBA9876543210";
/// A key: producer, place, sequence.
const KEY: &str = "kFEDCBA9876543210FEDCBA98";
const TAG: &str = "tag-9876";
/// Tags have four digits.
pub const TAGS_MAX: u32 = 10_000;
const OFFSET: &str = "0000000009999999999";
/// Field of a pull's flags.
const FLAGS: &str = "sysFlag";
/// Index of `OTHER` in the list of languages.
const OTHER: u8 = 7;
/// What the harness calls its producers.
const PRODUCER_GROUP: &str = "ringmq-bench";

/// What messages carry beside their bodies.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// Keys, beside the unique key.
    pub keys: bool,
    /// Different tags; 0: none.
    pub tags: u32,
}

/// The properties of a message, and where what differs is in them.
#[derive(Clone, Debug)]
struct Properties {
    unique_key: usize,
    key: Option<usize>,
    tag: Option<usize>,
    tags: u32,
}

impl Properties {
    fn text(extras: Extras) -> String {
        let mut text = String::new();
        let mut put = |name: &str, value: &str| {
            text.push_str(name);
            text.push('\u{1}');
            text.push_str(value);
            text.push('\u{2}');
        };
        if extras.keys {
            put("KEYS", KEY);
        }
        if extras.tags > 0 {
            put("TAGS", TAG);
        }
        put("UNIQ_KEY", UNIQUE_KEY);
        put("WAIT", "true");
        text
    }

    /// Finds them in bytes that hold [`Properties::text`], escaped or not.
    fn find(bytes: &[u8], extras: Extras) -> Properties {
        Properties {
            unique_key: find(bytes, UNIQUE_KEY),
            key: extras.keys.then(|| find(bytes, KEY)),
            tag: (extras.tags > 0).then(|| find(bytes, TAG)),
            tags: extras.tags,
        }
    }

    fn write(&self, bytes: &mut [u8], stamp: &Stamp) {
        let words = [stamp.run, stamp.producer, stamp.place, stamp.sequence];
        for (word, place) in words
            .into_iter()
            .zip(bytes[self.unique_key..].chunks_exact_mut(8))
        {
            write_hex(place, word);
        }
        if let Some(at) = self.key {
            for (word, place) in words[1..].iter().zip(bytes[at + 1..].chunks_exact_mut(8)) {
                write_hex(place, *word);
            }
        }
        if let Some(at) = self.tag {
            let tag = stamp.sequence % self.tags;
            write_decimal(&mut bytes[at + 4..at + TAG.len()], u64::from(tag));
        }
    }
}

/// A send to one queue.
#[derive(Clone, Debug)]
pub struct Send {
    head: Vec<u8>,
    opaque: usize,
    born: usize,
    /// Of a single message.
    properties: Option<Properties>,
    /// Properties of a message in a batch.
    item: Option<(Vec<u8>, Properties)>,
}

/// The queue that requests are about.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queues of the topic.
    pub queues: u32,
    /// Queue number.
    pub queue: u32,
    /// Name of the broker.
    pub broker: &'a str,
}

impl Send {
    /// Of single messages (310), or of batches (320).
    pub fn new(to: Queue<'_>, batch: bool, one_way: bool, extras: Extras) -> Send {
        let mut fixed = fixed(if batch {
            request::SEND_BATCH_MESSAGE
        } else {
            request::SEND_MESSAGE_V2
        });
        if one_way {
            fixed.flag |= FLAG_ONE_WAY;
        }
        let properties = Properties::text(extras);
        let ext = |w: &mut ExtWriter<'_>| {
            w.str("a", PRODUCER_GROUP);
            w.str("b", to.topic);
            w.str("c", "TBW102");
            w.int("d", i64::from(to.queues));
            w.int("e", i64::from(to.queue));
            w.int("f", 0);
            w.str("g", BORN);
            w.int("h", 0);
            w.str("i", if batch { "" } else { &properties });
            w.int("j", 0);
            w.bool("k", false);
            w.bool("m", batch);
            w.str("n", to.broker);
        };
        let mut head = Vec::new();
        header::encode(&mut head, Serialize::Json, &fixed, None, ext, 0);
        let item = batch.then(|| {
            let text = properties.into_bytes();
            let places = Properties::find(&text, extras);
            (text, places)
        });
        Send {
            opaque: find_number(&head),
            born: find(&head, BORN),
            properties: (!batch).then(|| Properties::find(&head, extras)),
            item,
            head,
        }
    }

    /// Appends the header of a send of one message; its body of `size` bytes follows.
    pub fn single(
        &self,
        opaque: i32,
        born: &[u8; 13],
        stamp: &Stamp,
        size: usize,
        out: &mut Vec<u8>,
    ) {
        let start = self.begin(opaque, born, size, out);
        if let Some(properties) = &self.properties {
            properties.write(&mut out[start..], stamp);
        }
    }

    /// Appends the header of a send of a batch; its body of `size` bytes follows.
    pub fn batch(&self, opaque: i32, born: &[u8; 13], size: usize, out: &mut Vec<u8>) {
        self.begin(opaque, born, size, out);
    }

    fn begin(&self, opaque: i32, born: &[u8; 13], size: usize, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&self.head);
        let head = &mut out[start..];
        let length = (self.head.len() - 4 + size) as u32;
        head[..4].copy_from_slice(&length.to_be_bytes());
        write_decimal(
            &mut head[self.opaque..self.opaque + OPAQUE.len()],
            opaque as u64,
        );
        head[self.born..self.born + BORN.len()].copy_from_slice(born);
        start
    }

    /// Size of a message in a batch, without its body.
    pub fn item_overhead(&self) -> usize {
        const FIXED: usize = 22;
        FIXED + self.item.as_ref().map_or(0, |(text, _)| text.len())
    }

    /// Appends a message of a batch; `body` appends its body of `size` bytes.
    pub fn item(
        &self,
        stamp: &Stamp,
        size: usize,
        out: &mut Vec<u8>,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let total = (self.item_overhead() + size) as u32;
        out.extend_from_slice(&total.to_be_bytes());
        // Magic, CRC and flag: the broker looks at none of the first two.
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&(size as u32).to_be_bytes());
        body(out);
        if let Some((text, properties)) = &self.item {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            let start = out.len();
            out.extend_from_slice(text);
            properties.write(&mut out[start..], stamp);
        }
    }
}

/// A pull of one queue for one group.
#[derive(Clone, Debug)]
pub struct Pull {
    bytes: Vec<u8>,
    opaque: usize,
    offset: usize,
    /// Where its flags are: one digit.
    flags: usize,
}

impl Pull {
    /// Of at most `max` messages. With `wait_ms` above 0 the broker waits that long for one.
    pub fn new(from: Queue<'_>, group: &str, max: u32, wait_ms: u64) -> Pull {
        let wait = if wait_ms > 0 { pull_flag::SUSPEND } else { 0 };
        let ext = |w: &mut ExtWriter<'_>| {
            w.str("consumerGroup", group);
            w.str("topic", from.topic);
            w.int("queueId", i64::from(from.queue));
            w.str("queueOffset", OFFSET);
            w.int("maxMsgNums", i64::from(max));
            w.int(FLAGS, i64::from(pull_flag::SUBSCRIPTION | wait));
            w.int("commitOffset", 0);
            w.int("suspendTimeoutMillis", wait_ms as i64);
            w.str("subscription", "*");
            w.int("subVersion", 0);
            w.str("expressionType", "TAG");
            w.str("bname", from.broker);
        };
        let mut bytes = Vec::new();
        let fixed = fixed(request::PULL_MESSAGE);
        header::encode(&mut bytes, Serialize::Json, &fixed, None, ext, 0);
        Pull {
            opaque: find_number(&bytes),
            offset: find(&bytes, OFFSET),
            flags: find(&bytes, &format!("\"{FLAGS}\":\"")) + FLAGS.len() + 4,
            bytes,
        }
    }

    /// The same as [`Pull::write`], but the broker answers at once.
    pub fn write_without_wait(&self, opaque: i32, offset: i64, out: &mut Vec<u8>) {
        let start = out.len();
        self.write(opaque, offset, out);
        out[start + self.flags] = b'0' + pull_flag::SUBSCRIPTION as u8;
    }

    /// Appends a pull from this queue offset on.
    pub fn write(&self, opaque: i32, offset: i64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let bytes = &mut out[start..];
        write_decimal(
            &mut bytes[self.opaque..self.opaque + OPAQUE.len()],
            opaque as u64,
        );
        write_decimal(
            &mut bytes[self.offset..self.offset + OFFSET.len()],
            offset.max(0) as u64,
        );
    }
}

/// The time in milliseconds since 1970 as 13 digits.
pub fn born(ms: u64) -> [u8; 13] {
    let mut digits = [b'0'; 13];
    write_decimal(&mut digits, ms);
    digits
}

fn fixed(code: i32) -> Fixed {
    Fixed {
        code,
        language: OTHER,
        version: VERSION,
        opaque: i32::MAX,
        flag: 0,
    }
}

/// Place of the request's number behind the last `"opaque":`, which is the header's own.
fn find_number(bytes: &[u8]) -> usize {
    const NAME: &str = "\"opaque\":";
    let at = memmem::rfind(bytes, NAME.as_bytes()).unwrap_or(PREFIX_BYTES) + NAME.len();
    debug_assert!(bytes[at..].starts_with(OPAQUE.as_bytes()));
    at
}

/// Place of a text that is there: it was just written.
fn find(bytes: &[u8], text: &str) -> usize {
    memmem::find(bytes, text.as_bytes()).expect("a template holds its placeholders")
}

fn write_decimal(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn write_hex(place: &mut [u8], word: u32) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for (pair, byte) in place.chunks_exact_mut(2).zip(word.to_be_bytes()) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmq::wire::batch;
    use ringmq::wire::frame::{Frame, Split, split};
    use ringmq::wire::header::{Header, Scratch};
    use ringmq::wire::properties;
    use ringmq::wire::pull_header::PullHeader;
    use ringmq::wire::send_header::SendHeader;

    const QUEUE: Queue<'static> = Queue {
        topic: "T\"opaque\":1",
        queues: 8,
        queue: 3,
        broker: "b",
    };
    const STAMP: Stamp = Stamp {
        run: 0xAABB_CCDD,
        producer: 1,
        place: 2,
        sequence: 13,
        floor: 0,
        due: 0,
    };

    fn frame_of(bytes: &[u8]) -> Frame<'_> {
        let Ok(Split::Frame(frame, used)) = split(bytes) else {
            panic!("no frame");
        };
        assert_eq!(used, bytes.len());
        frame
    }

    fn check_properties(bytes: &[u8]) {
        let get = |name| properties::get(bytes, name).map(|value| String::from_utf8_lossy(value));
        assert_eq!(
            get("UNIQ_KEY").as_deref(),
            Some("AABBCCDD00000001000000020000000D")
        );
        assert_eq!(get("KEYS").as_deref(), Some("k00000001000000020000000D"));
        assert_eq!(get("TAGS").as_deref(), Some("tag-0003"));
        assert_eq!(get("WAIT").as_deref(), Some("true"));
    }

    const EXTRAS: Extras = Extras {
        keys: true,
        tags: 5,
    };

    #[test]
    fn a_send_is_what_a_broker_reads() {
        let mut out = Vec::new();
        let send = Send::new(QUEUE, false, false, EXTRAS);
        send.single(
            OPAQUE_MIN + 5,
            &born(1_700_000_000_123),
            &STAMP,
            4,
            &mut out,
        );
        out.extend_from_slice(b"body");
        let frame = frame_of(&out);
        assert_eq!(frame.body, b"body");
        let mut scratch = Scratch::default();
        let header = Header::decode(&frame, &mut scratch).expect("a header");
        assert_eq!(header.fixed.opaque, 1_000_000_005);
        assert_eq!(header.fixed.code, 310);
        assert!(!header.fixed.is_one_way());
        let send = SendHeader::parse(&header).expect("a send");
        assert_eq!((send.topic, send.queue_id), (QUEUE.topic, 3));
        assert_eq!(send.born_timestamp, 1_700_000_000_123);
        assert!(!send.batch);
        check_properties(send.properties);
    }

    #[test]
    fn a_batch_is_what_a_broker_reads() {
        let mut out = Vec::new();
        let send = Send::new(QUEUE, true, true, EXTRAS);
        let size = 2 * (send.item_overhead() + 4);
        send.batch(OPAQUE_MIN, &born(5), size, &mut out);
        for _ in 0..2 {
            send.item(&STAMP, 4, &mut out, |out| out.extend_from_slice(b"body"));
        }
        let frame = frame_of(&out);
        let mut scratch = Scratch::default();
        let header = Header::decode(&frame, &mut scratch).expect("a header");
        assert!(header.fixed.is_one_way());
        let parsed = SendHeader::parse(&header).expect("a send");
        assert!(parsed.batch);
        assert_eq!(parsed.born_timestamp, 5);
        let items: Result<Vec<_>, _> = batch::items(frame.body).collect();
        let items = items.expect("a batch");
        assert_eq!(items.len(), 2);
        for item in items {
            assert_eq!(item.body, b"body");
            check_properties(item.properties);
        }
    }

    #[test]
    fn a_pull_is_what_a_broker_reads() {
        let mut out = Vec::new();
        Pull::new(QUEUE, "g", 32, 0).write(OPAQUE_MIN + 9, 12_345, &mut out);
        Pull::new(QUEUE, "g", 16, 15_000).write(OPAQUE_MIN, 0, &mut out);
        let Ok(Split::Frame(frame, used)) = split(&out) else {
            panic!("no frame");
        };
        let mut scratch = Scratch::default();
        let header = Header::decode(&frame, &mut scratch).expect("a header");
        assert_eq!(header.fixed.opaque, 1_000_000_009);
        let pull = PullHeader::parse(&header).expect("a pull");
        assert_eq!((pull.queue_offset, pull.max_messages), (12_345, 32));
        assert_eq!(pull.sys_flag & pull_flag::SUSPEND, 0);
        let waiting = frame_of(&out[used..]);
        let header = Header::decode(&waiting, &mut scratch).expect("a header");
        let pull = PullHeader::parse(&header).expect("a pull");
        assert_eq!(pull.suspend_timeout_ms, 15_000);
        assert_ne!(pull.sys_flag & pull_flag::SUSPEND, 0);

        let mut at_once = Vec::new();
        Pull::new(QUEUE, "g", 16, 15_000).write_without_wait(OPAQUE_MIN, 7, &mut at_once);
        let header = Header::decode(&frame_of(&at_once), &mut scratch).expect("a header");
        let pull = PullHeader::parse(&header).expect("a pull");
        assert_eq!(
            (pull.sys_flag, pull.queue_offset),
            (pull_flag::SUBSCRIPTION, 7)
        );
    }
}
