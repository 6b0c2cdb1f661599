//! Messages of which nobody here knows what was acknowledged: what they tell by themselves.
//!
//! Those of this harness have a checksum of their own, whatever the broker computed, and a
//! sequence. An order that was broken shows, and what is there twice; what is missing does not.

use super::order::{Order, Standing};
use super::stamp::{STAMP_BYTES, Stamp};
use crate::bench::result::Verified;
use ringmq::wire::message::Record;
use ringmq::wire::properties;
use std::collections::HashMap;

/// Sequences of a sender that are kept, to find what is there twice: at most 8 MiB.
const KEPT_MAX: u32 = 1 << 26;

/// Sequences below the first one that may still come: those that it overtook in flight.
const SLACK: u32 = 1 << 12;

/// Messages of one queue.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// By run and producer.
    senders: HashMap<(u32, u32), Sender>,
    /// What was wrong. Nothing is counted as good or missing.
    found: Verified,
}

#[derive(Clone, Debug)]
struct Sender {
    /// The sender's number of this queue.
    place: u32,
    order: Order,
}

impl Streams {
    /// Notes a message, in the order of the queue. Returns its stamp; of a message of others, what
    /// stands in its place.
    pub fn note(&mut self, record: &Record<'_>) -> Option<Stamp> {
        let body = record.body();
        let stamp = Stamp::decode(body);
        if record.verify().is_err() || (stamp.is_none() && self.is_damaged(record)) {
            self.found.wrong += 1;
            return None;
        }
        let Some(stamp) = stamp else {
            return Stamp::peek(body);
        };
        let new = || Sender {
            place: stamp.place,
            order: Order::from(stamp.sequence.saturating_sub(SLACK)),
        };
        let sender = self.senders.entry((stamp.run, stamp.producer));
        let sender = sender.or_insert_with(new);
        if sender.place != stamp.place {
            // It belongs into another queue.
            self.found.wrong += 1;
            return None;
        }
        if stamp.sequence.saturating_sub(sender.order.base()) >= KEPT_MAX {
            sender.order.forget_below(stamp.sequence);
        }
        match sender.order.note(&stamp) {
            Standing::InOrder => {}
            Standing::Overtaken => self.found.overtaken += 1,
            Standing::Behind => self.found.misplaced += 1,
            Standing::Doubled => self.found.doubled += 1,
        }
        Some(stamp)
    }

    /// Whether a body without a valid stamp had one: its unique key tells.
    fn is_damaged(&self, record: &Record<'_>) -> bool {
        let Some([run, producer, place, sequence]) = unique_key(record.properties()) else {
            return false;
        };
        let is_of_sender = Stamp::peek(record.body()).is_some_and(|stamp| {
            let told = (stamp.run, stamp.producer, stamp.place, stamp.sequence);
            told == (run, producer, place, sequence)
        });
        // Without verification senders leave the checksum out.
        let has_checksum = || record.body()[STAMP_BYTES - 4..STAMP_BYTES] != [0; 4];
        self.senders.contains_key(&(run, producer)) || (is_of_sender && has_checksum())
    }

    /// The queue is read from its start again.
    pub fn rewind(&mut self) {
        self.senders.clear();
    }

    /// What was wrong.
    pub fn found(&self) -> &Verified {
        &self.found
    }
}

/// Run, producer, place and sequence of a unique key as the harness makes them.
fn unique_key(bytes: &[u8]) -> Option<[u32; 4]> {
    let key = properties::get(bytes, properties::name::UNIQ_KEY)?;
    let key = std::str::from_utf8(key).ok()?;
    if key.len() != 32 || !key.is_ascii() {
        return None;
    }
    let mut words = [0; 4];
    for (at, word) in words.iter_mut().enumerate() {
        *word = u32::from_str_radix(&key[at * 8..at * 8 + 8], 16).ok()?;
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::payload::{Payloads, SizeDistribution};
    use ringmq::wire::message::{self, Parts, body_crc};

    fn stamp(producer: u32, sequence: u32, floor: u32) -> Stamp {
        Stamp {
            run: 0xbeef,
            producer,
            place: 3,
            sequence,
            floor,
            due: 5,
        }
    }

    fn body(stamp: &Stamp, checked: bool) -> Vec<u8> {
        let payloads = Payloads::new(&SizeDistribution::Fixed(100), 0.0);
        let mut body = Vec::new();
        payloads.write(7, stamp, checked, &mut body);
        body
    }

    fn key(stamp: &Stamp) -> String {
        format!(
            "{:08X}{:08X}{:08X}{:08X}",
            stamp.run, stamp.producer, stamp.place, stamp.sequence
        )
    }

    /// A record as a broker stores it: with the checksum of what it stores.
    fn record(key: &str, body: &[u8]) -> Vec<u8> {
        let host = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let properties = format!("UNIQ_KEY\u{1}{key}\u{2}");
        let parts = Parts {
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_offset: 0,
            body,
            body_crc: body_crc(body),
            topic: b"T",
            properties: properties.as_bytes(),
        };
        let place = message::Stamp {
            queue_offset: 0,
            physical_offset: 0,
            store_timestamp: 0,
        };
        let mut bytes = Vec::new();
        parts.write(&place, |piece| bytes.extend_from_slice(piece));
        bytes
    }

    fn note(streams: &mut Streams, key: &str, body: &[u8]) -> Option<Stamp> {
        let bytes = record(key, body);
        streams.note(&Record::parse(&bytes).expect("a record"))
    }

    fn note_all(sent: &[(u32, u32, u32)]) -> Verified {
        let mut streams = Streams::default();
        for &(producer, sequence, floor) in sent {
            let stamp = stamp(producer, sequence, floor);
            let noted = note(&mut streams, &key(&stamp), &body(&stamp, true));
            assert_eq!(noted, Some(stamp));
        }
        streams.found().clone()
    }

    #[test]
    fn doubles_and_broken_orders_show_without_the_ledger_of_the_sender() {
        let good = note_all(&[(1, 900, 890), (2, 5, 0), (1, 901, 895), (2, 6, 6)]);
        assert_eq!(good, Verified::default());
        let found = note_all(&[(1, 900, 890), (2, 900, 890), (1, 902, 890), (1, 901, 890)]);
        assert_eq!(found.overtaken, 1);
        assert!(found.is_good(), "{found:?}");
        let found = note_all(&[(1, 900, 890), (1, 902, 902), (1, 901, 890), (1, 900, 890)]);
        let (misplaced, doubled) = (found.misplaced, found.doubled);
        assert_eq!((misplaced, doubled, found.overtaken), (1, 1, 0));
        // Those of a sender that waits for no answers.
        let found = note_all(&[(1, 9, 0), (1, 8, 0), (1, u32::MAX, 0), (1, u32::MAX, 0)]);
        assert_eq!((found.overtaken, found.doubled), (1, 1));
    }

    #[test]
    fn what_is_read_again_from_its_start_is_not_there_twice() {
        let mut streams = Streams::default();
        let stamp = stamp(1, 4, 0);
        for _ in 0..2 {
            note(&mut streams, &key(&stamp), &body(&stamp, true));
            streams.rewind();
        }
        assert_eq!(streams.found(), &Verified::default());
    }

    #[test]
    fn a_message_of_another_queue_is_wrong() {
        let mut streams = Streams::default();
        let here = stamp(1, 4, 0);
        let elsewhere = Stamp { place: 4, ..here };
        note(&mut streams, &key(&here), &body(&here, true));
        assert_eq!(
            note(&mut streams, &key(&elsewhere), &body(&elsewhere, true)),
            None
        );
        assert_eq!(streams.found().wrong, 1);
    }

    /// The broker's own checksum is right: it was computed afterwards.
    #[test]
    fn a_body_that_changed_before_it_was_stored_is_wrong() {
        // In the stamp its message is known by the sender's others.
        for (at, known) in [(2, true), (13, true), (25, false), (31, false), (60, false)] {
            let mut streams = Streams::default();
            if known {
                let before = stamp(1, 3, 0);
                note(&mut streams, &key(&before), &body(&before, true));
            }
            let stamp = stamp(1, 4, 0);
            let mut body = body(&stamp, true);
            body[at] ^= 4;
            assert_eq!(note(&mut streams, &key(&stamp), &body), None);
            assert_eq!(streams.found().wrong, 1, "byte {at}");
        }
    }

    #[test]
    fn messages_without_a_checksum_of_theirs_are_no_fault() {
        let mut streams = Streams::default();
        let stamp = stamp(1, 4, 0);
        let unchecked = note(&mut streams, &key(&stamp), &body(&stamp, false));
        assert_eq!(unchecked, Some(stamp));
        let foreign = "7F0000010B1C18B4AAC2000000000000";
        assert!(note(&mut streams, foreign, &[b'x'; 100]).is_some());
        assert_eq!(note(&mut streams, foreign, b"short"), None);
        assert_eq!(note(&mut streams, "", b""), None);
        assert_eq!(streams.found(), &Verified::default());
    }
}
