//! The messages of an answer to a pull, inner batches taken apart
//! (`PullAPIWrapper.processPullResult`).
//!
//! A broker may store a batch as one message (topics of the type `BatchConsumeQueue`); whoever
//! pulls takes it apart. The queue counts each message of it, so the n-th has the n-th offset
//! from the batch's on. Queues of other topics count such a batch as one, also where it was
//! sent back to a retry topic: its messages share the offset then, which is consumed with the
//! last of them. Java counts on all the same, over the offsets of the messages behind it.

use std::sync::Arc;

use bytes::Bytes;

use super::process_queue::At;
use super::{MessageQueue, ReceivedMessage, is_retry};
use crate::wire::properties::name;

/// Topics that share the messages of another.
const LMQ_PREFIX: &str = "%LMQ%";

/// What an answer brought.
#[derive(Debug)]
pub(super) struct Found {
    /// In the order of the queue, from the offset on that was asked for.
    pub messages: Vec<ReceivedMessage>,
    /// Where the next pull begins.
    pub next: i64,
    /// Why what follows the messages could not be read.
    pub fault: Option<String>,
    /// What is wrong with batches that could not be taken apart: like Java's, this client
    /// hands them over as they are.
    pub batch_faults: Vec<String>,
}

/// The place of a message in the line of its queue.
pub(super) fn place(message: &ReceivedMessage) -> At {
    At {
        offset: message.queue_offset,
        part: message.part,
    }
}

/// Reads an answer of a queue that was asked from `offset` on; `next` is where the broker says
/// that it goes on, `shifted` what it says must be added to offsets.
pub(super) fn read(
    mut body: Bytes,
    queue: &MessageQueue,
    offset: i64,
    next: Option<i64>,
    shifted: i64,
) -> Found {
    let (mut last, mut fault, mut batches) = (offset - 1, None, false);
    let mut stored = Vec::new();
    while !body.is_empty() {
        let (mut message, len) =
            match ReceivedMessage::parse(&body, &queue.broker_name, &queue.topic) {
                Ok(parsed) => parsed,
                Err(error) => {
                    fault = Some(error.to_string());
                    break;
                }
            };
        body = body.slice(len.min(body.len())..);
        if let Some(what) = misplaced(&message, queue, shifted) {
            fault = Some(what);
            break;
        }
        let count = match message.is_inner_batch() {
            true => message.inner_count(),
            false => None,
        };
        message.queue_offset = message.queue_offset.saturating_add(shifted);
        // The first batch may begin before the offset that was asked for.
        let whole = stored.is_empty().then_some(count).flatten().unwrap_or(1);
        let end = message.queue_offset.saturating_add(whole - 1);
        if end <= last || end == i64::MAX {
            fault = Some(format!(
                "offset {} after {last}, asked from {offset}",
                message.queue_offset
            ));
            break;
        }
        last = message.queue_offset;
        put_topic_back(&mut message);
        message.queue = queue.clone();
        batches |= message.is_inner_batch();
        stored.push((message, count));
    }
    if stored.is_empty() && fault.is_none() {
        fault = Some("no message in the answer".to_owned());
    }
    let next = next.filter(|_| fault.is_none());
    let mut found = Found {
        messages: Vec::with_capacity(stored.len()),
        next: next.unwrap_or(offset).max(offset),
        fault,
        batch_faults: Vec::new(),
    };
    if batches {
        take_apart(&mut found, stored, offset, next);
    } else {
        found.next = found.next.max(last.saturating_add(1));
        found
            .messages
            .extend(stored.into_iter().map(|(message, _)| message));
    }
    found
}

/// Takes the batches among what is stored apart.
fn take_apart(
    found: &mut Found,
    stored: Vec<(ReceivedMessage, Option<i64>)>,
    offset: i64,
    next: Option<i64>,
) {
    let mut stored = stored.into_iter().peekable();
    while let Some((message, count)) = stored.next() {
        let base = message.queue_offset;
        // The offsets up to what follows are its own, whatever it says of itself.
        let behind = stored
            .peek()
            .map(|(message, _)| message.queue_offset)
            .or(next);
        let said = count.unwrap_or(1);
        let room = behind.map_or(said, |behind| behind.saturating_sub(base));
        found.next = found.next.max(base.saturating_add(said.min(room).max(1)));
        if !message.is_inner_batch() {
            found.messages.push(message);
            continue;
        }
        let inner = match message.unwrap_batch() {
            Ok(inner) => inner,
            Err(error) => {
                let text = format!("message at offset {base}: {error}");
                found.batch_faults.push(text);
                found.messages.push(message);
                continue;
            }
        };
        let counted = inner.len() as i64 <= room;
        for (index, mut message) in (0u32..).zip(inner) {
            if counted {
                message.queue_offset += i64::from(index);
            } else {
                message.part = index;
            }
            // What lies before was not asked for: it was consumed, or passed over.
            if message.queue_offset >= offset {
                found.next = found.next.max(message.queue_offset + 1);
                found.messages.push(message);
            }
        }
    }
}

/// Why a message is not of the queue that was asked for: the answer is one to another
/// question, and its offsets mean nothing here.
fn misplaced(message: &ReceivedMessage, queue: &MessageQueue, shifted: i64) -> Option<String> {
    let shares = queue.topic.starts_with(LMQ_PREFIX) || shifted != 0;
    let same = message.topic() == &*queue.topic && message.queue.queue_id == queue.queue_id;
    let (topic, id) = (message.topic(), message.queue.queue_id);
    (!same && !shares).then(|| format!("a message of queue {id} of topic {topic}"))
}

/// A message of the retry topic is seen under the topic it was sent to.
pub(super) fn put_topic_back(message: &mut ReceivedMessage) {
    if is_retry(message.topic()) {
        if let Some(topic) = message.property(name::RETRY_TOPIC) {
            let topic: Arc<str> = topic.into();
            message.set_topic(topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::batch;
    use crate::wire::message::{Parts, Stamp, body_crc};
    use crate::wire::properties;

    /// Flags of a batch that is stored as one message.
    const BATCH: i32 = 0x40 | 0x80;

    fn queue() -> MessageQueue {
        MessageQueue::new("t", "b", 0)
    }

    fn record(offset: i64, sys_flag: i32, body: &[u8], properties: &[u8]) -> Vec<u8> {
        let host = ([10, 0, 0, 1], 10911).into();
        let parts = Parts {
            queue_id: 0,
            flag: 0,
            sys_flag,
            born_timestamp: 5,
            born_host: host,
            store_host: host,
            reconsume_times: 2,
            prepared_offset: 0,
            body,
            body_crc: body_crc(body),
            topic: b"t",
            properties,
        };
        let stamp = Stamp {
            queue_offset: offset,
            physical_offset: 100 + offset,
            store_timestamp: 13,
        };
        let mut out = Vec::new();
        parts.write(&stamp, |piece| out.extend_from_slice(piece));
        out
    }

    fn encoded(bodies: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for (flag, body) in (1..).zip(bodies) {
            let item = batch::Item {
                flag,
                body: body.as_bytes(),
                properties: &tagged(body),
            };
            batch::push(&mut out, &item);
        }
        out
    }

    fn tagged(tag: &str) -> Vec<u8> {
        let mut properties = Vec::new();
        properties::push(&mut properties, name::TAGS, tag.as_bytes());
        properties
    }

    fn inner(base: i64, count: usize) -> Vec<u8> {
        let mut properties = Vec::new();
        for (name, value) in [
            ("INNER_NUM", count.to_string()),
            ("INNER_BASE", base.to_string()),
        ] {
            properties::push(&mut properties, name, value.as_bytes());
        }
        properties
    }

    fn counted(base: i64, bodies: &[&str]) -> Vec<u8> {
        record(base, BATCH, &encoded(bodies), &inner(base, bodies.len()))
    }

    fn places(found: &Found) -> Vec<(i64, u32, &str)> {
        let of = |message: &ReceivedMessage| (message.queue_offset, message.part);
        let messages = found.messages.iter();
        let texts = messages.map(|message| {
            let (offset, part) = of(message);
            (offset, part, message.tag().unwrap_or_default())
        });
        texts.collect()
    }

    #[test]
    fn a_batch_is_as_many_messages_as_the_queue_counts() {
        let mut body = record(4, 0, b"before", &tagged("x"));
        body.extend(counted(5, &["a", "b", "c"]));
        body.extend(record(8, 0, b"behind", &tagged("y")));
        let found = read(body.into(), &queue(), 4, Some(9), 0);
        assert_eq!((found.next, &found.fault), (9, &None));
        let expected = [
            (4, 0, "x"),
            (5, 0, "a"),
            (6, 0, "b"),
            (7, 0, "c"),
            (8, 0, "y"),
        ];
        assert_eq!(places(&found), expected);
        let second = &found.messages[2];
        assert_eq!((second.body().as_ref(), second.flag), (&b"b"[..], 2));
        assert_eq!(second.property("INNER_NUM"), None, "the batch's own");
        // All else is that of the batch.
        assert_eq!((second.physical_offset, second.reconsume_times), (105, 2));
        assert_eq!((second.topic(), &second.queue), ("t", &queue()));
        assert!(second.is_unwrapped() && !second.is_inner_batch());
    }

    #[test]
    fn a_pull_within_a_batch_gets_the_rest_of_it() {
        let found = read(counted(5, &["a", "b", "c"]).into(), &queue(), 7, Some(8), 0);
        assert_eq!((places(&found), found.next), (vec![(7, 0, "c")], 8));
        let ended = read(counted(5, &["a", "b", "c"]).into(), &queue(), 8, Some(9), 0);
        assert!(ended.messages.is_empty() && ended.fault.is_some());
    }

    /// Also a batch that says of itself what was true in another queue.
    #[test]
    fn where_the_queue_counts_a_batch_as_one_its_messages_share_the_offset() {
        for properties in [Vec::new(), inner(900, 3), inner(5, 3), inner(5, 20)] {
            let mut body = record(5, BATCH, &encoded(&["a", "b", "c"]), &properties);
            body.extend(record(6, 0, b"behind", &tagged("y")));
            let found = read(body.into(), &queue(), 5, Some(7), 0);
            let expected = [(5, 0, "a"), (5, 1, "b"), (5, 2, "c"), (6, 0, "y")];
            assert_eq!((places(&found), found.next), (expected.to_vec(), 7));
            // The same at the end of the answer.
            let body = record(5, BATCH, &encoded(&["a", "b"]), &properties);
            let found = read(body.into(), &queue(), 5, Some(6), 0);
            assert_eq!(places(&found), [(5, 0, "a"), (5, 1, "b")]);
            assert_eq!(found.next, 6);
        }
    }

    #[test]
    fn a_batch_that_is_none_comes_as_it_is_and_says_why() {
        let mut cut = encoded(&["a", "b"]);
        cut.pop();
        let mut body = record(5, BATCH, &cut, &inner(5, 2));
        body.extend(counted(7, &["c", "d"]));
        let found = read(body.into(), &queue(), 5, Some(9), 0);
        assert_eq!((found.messages.len(), found.next), (3, 9));
        assert_eq!(found.messages[0].body().as_ref(), cut);
        assert!(found.messages[0].is_inner_batch());
        assert_eq!(found.fault, None);
        let expected = "message at offset 5: batch body: the lengths of the message at byte 30 \
                        do not add up";
        assert_eq!(found.batch_faults, [expected]);
    }

    #[test]
    fn an_answer_that_breaks_off_goes_on_behind_the_whole_batch() {
        for broken in [false, true] {
            let mut batch = encoded(&["a", "b"]);
            batch.truncate(batch.len() - usize::from(broken));
            let mut body = record(5, BATCH, &batch, &inner(5, 2));
            body.extend_from_slice(b"garbage");
            let found = read(body.into(), &queue(), 5, Some(900), 0);
            assert!(found.fault.is_some());
            assert_eq!(found.next, 7);
        }
    }

    #[test]
    fn offsets_are_shifted_and_bodies_decompressed() {
        let packed = {
            use std::io::Write;
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            zlib.write_all(&encoded(&["a", "b"])).unwrap();
            zlib.finish().unwrap()
        };
        let body = record(5, BATCH | 1, &packed, &inner(5, 2));
        let found = read(body.into(), &queue(), 1005, Some(1007), 1000);
        assert_eq!(places(&found), [(1005, 0, "a"), (1006, 0, "b")]);
        assert!(!found.messages[0].is_compressed());
        let bad = record(5, BATCH | 1, b"no zlib", &inner(5, 2));
        let found = read(bad.into(), &queue(), 5, Some(7), 0);
        assert_eq!((found.messages.len(), found.batch_faults.len()), (1, 1));
    }

    #[test]
    fn an_empty_batch_is_passed_over() {
        let found = read(counted(5, &[]).into(), &queue(), 5, Some(6), 0);
        assert_eq!((found.messages.len(), found.next), (0, 6));
        assert_eq!(found.fault, None);
    }

    proptest! {
        /// Whatever is stored how, each message from the asked offset on comes exactly once,
        /// in order, at places that rise, and the next pull begins behind all of them.
        #[test]
        fn nothing_is_lost_or_doubled(
            stored in prop::collection::vec((0usize..6, any::<bool>(), 0i64..3), 1..12),
            from in 0i64..40,
        ) {
            let (mut next, mut expected, mut records) = (0i64, Vec::new(), Vec::new());
            for (n, (count, counts, gap)) in stored.into_iter().enumerate() {
                let names: Vec<_> = (0..count).map(|i| format!("{n}.{i}")).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                let base = next + gap;
                let (bytes, takes) = match (count, counts) {
                    (0, _) => (record(base, 0, b"", &tagged(&format!("{n}"))), 1),
                    (_, true) => (counted(base, &names), count as i64),
                    (_, false) => (record(base, BATCH, &encoded(&names), b""), 1),
                };
                next = base + takes;
                if next > from {
                    records.push(bytes);
                    let names = match count { 0 => vec![format!("{n}")], _ => {
                        names.iter().map(|&name| name.to_owned()).collect()
                    }};
                    let at = |i: usize| if counts { base + i as i64 } else { base };
                    expected.extend(names.into_iter().enumerate()
                        .filter(|&(i, _)| at(i) >= from).map(|(_, name)| name));
                }
            }
            if !records.is_empty() {
                let found = read(records.concat().into(), &queue(), from, Some(next), 0);
                prop_assert_eq!(&found.fault, &None);
                let tags = found.messages.iter().map(|message| message.tag().unwrap().to_owned());
                prop_assert_eq!(tags.collect::<Vec<_>>(), expected);
                let places: Vec<_> = found.messages.iter().map(place).collect();
                prop_assert!(places.is_sorted_by(|a, b| a < b), "{:?}", places);
                prop_assert_eq!(found.next, next.max(from));
            }
        }

        #[test]
        fn arbitrary_batches_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100), cut: u8, count: i16, base: i64,
            offset: i64, next: i64, flags in 0i32..2,
        ) {
            let mut body = encoded(&["a", "b"]);
            body.extend(bytes);
            body.truncate(cut.into());
            let mut properties = Vec::new();
            properties::push(&mut properties, "INNER_NUM", count.to_string().as_bytes());
            properties::push(&mut properties, "INNER_BASE", base.to_string().as_bytes());
            let bytes = record(base, BATCH | flags, &body, &properties);
            let found = read(bytes.into(), &queue(), offset.max(0), Some(next), 0);
            prop_assert!(found.next >= offset.max(0));
        }
    }
}
