//! The offsets of a broadcasting consumer: a file beside the application, in the Java
//! client's format (`LocalFileOffsetStore`, `OffsetSerializeWrapper`).
//!
//! `offsets.json` is replaced when something changed, every 5 s and at the end; what it
//! said before goes to `offsets.json.bak` first. A file that cannot be read is answered
//! by the other, and where neither can be, the start fails; one that cannot be written is
//! told, and tried again next time: nothing that was consumed is lost by it but the memory
//! of it. Whoever commits hears of it once the file says it, or why it does not.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rebalance::wire_queue;
use super::{Consumer, Effect, Life, MessageQueue, Phase};
use crate::client::core::io::{Answer, FileFault, Ticket};
use crate::client::error::{Error, ErrorKind};
use crate::wire::body::json;

/// Most queues that are taken from a file.
const QUEUES_MAX: usize = 1_000_000;

/// Offsets by queue, and whether the file says the same.
#[derive(Debug, Default)]
pub struct OffsetTable {
    offsets: BTreeMap<MessageQueue, i64>,
    changed: bool,
    /// What the file says.
    content: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wrapper {
    #[serde(default)]
    offset_table: Option<BTreeMap<json::MessageQueue, i64>>,
}

impl OffsetTable {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(content: &[u8]) -> Result<OffsetTable, String> {
        let wrapper: Wrapper = json::parse(content).map_err(|error| error.to_string())?;
        let offsets = wrapper.offset_table.unwrap_or_default();
        if offsets.len() > QUEUES_MAX {
            let count = offsets.len();
            return Err(format!("{count} queues, at most {QUEUES_MAX} are taken"));
        }
        let offsets = offsets.into_iter().map(|(queue, offset)| {
            let queue = MessageQueue::new(queue.topic, queue.broker_name, queue.queue_id);
            (queue, offset)
        });
        Ok(OffsetTable {
            offsets: offsets.filter(|&(_, offset)| offset >= 0).collect(),
            changed: false,
            content: Some(content.to_vec()),
        })
    }

    /// As the Java client reads it.
    pub fn to_json(&self) -> Vec<u8> {
        let offsets = self.offsets.iter();
        let entries: BTreeMap<_, _> = offsets
            .map(|(q, &offset)| (wire_queue(q), offset))
            .collect();
        let mut out = String::from(r#"{"offsetTable":"#);
        json::write_queue_map(&mut out, entries.iter());
        out.push('}');
        out.into_bytes()
    }

    /// The offset of a queue.
    pub fn get(&self, queue: &MessageQueue) -> Option<i64> {
        self.offsets.get(queue).copied()
    }

    pub(super) fn set(&mut self, queue: &MessageQueue, offset: i64) {
        if self.offsets.insert(queue.clone(), offset) != Some(offset) {
            self.changed = true;
        }
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }
}

/// A file being written.
#[derive(Debug)]
pub(super) enum Storing {
    /// What it said before, beside it; then this.
    Backup(Vec<u8>),
    /// The file, with this.
    File(Vec<u8>),
}

/// Callers who wait for the file.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// For the content that is being written.
    now: Vec<Ticket>,
    /// For what has changed since that was begun.
    next: Vec<Ticket>,
}

impl Consumer {
    fn file(&self) -> String {
        format!("{}/{}/offsets.json", self.rules.file_id, self.rules.group)
    }

    fn backup(&self) -> String {
        self.file() + ".bak"
    }

    pub(super) fn load_file(&mut self) {
        let file = self.file();
        self.effects.push(Effect::LoadOffsets { file });
    }

    /// The content of the file that was asked for, `None` where there is none.
    pub fn offsets_loaded(&mut self, now: u64, result: Result<Option<Vec<u8>>, FileFault>) {
        if self.life != Life::Loading {
            return;
        }
        let first = !std::mem::replace(&mut self.backup_asked, true);
        let file = if first { self.file() } else { self.backup() };
        let read = match result {
            Ok(None) => Ok(None),
            Ok(Some(content)) if content.is_empty() => Ok(None),
            Ok(Some(content)) => OffsetTable::parse(&content)
                .map(Some)
                .map_err(|why| FileFault { path: file, why }),
            Err(fault) => Err(fault),
        };
        match read {
            Ok(Some(table)) => {
                self.file = table;
                // What the backup says is not what the file says.
                if !first {
                    self.file.changed = true;
                    self.file.content = None;
                }
            }
            Ok(None) => {
                if let Some(fault) = self.unread.take() {
                    self.fail(fault);
                    return;
                }
            }
            Err(fault) if first => {
                self.file_fault(fault.clone());
                self.unread = Some(fault);
            }
            Err(fault) => {
                self.fail(fault);
                return;
            }
        }
        if first && self.file.content.is_none() {
            let file = self.backup();
            self.effects.push(Effect::LoadOffsets { file });
        } else {
            self.run(now);
        }
    }

    /// Where it was is not known, and any other place would skip messages or repeat them all:
    /// it does not start.
    fn fail(&mut self, fault: FileFault) {
        let FileFault { path, why } = fault;
        let error = Error::new(ErrorKind::OffsetFile { path, why }).of_group(&self.rules.group);
        self.life = Life::Stopped;
        self.effects.push(Effect::Failed(error));
    }

    fn file_fault(&mut self, fault: FileFault) -> Error {
        let FileFault { path, why } = fault;
        let error = Error::new(ErrorKind::OffsetFile { path, why });
        self.fault(error.clone());
        error
    }

    /// Writes the file, if it says something else, and tells a caller when it says what is
    /// to be said now.
    pub(super) fn store_file_for(&mut self, ticket: Ticket) {
        self.file_waiters.next.push(ticket);
        self.store_file();
        if self.file.changed {
            // Its turn comes after the content that is being written.
            return;
        }
        let waiters = &mut self.file_waiters;
        waiters.now.append(&mut waiters.next);
        if self.storing.is_none() {
            self.end_file_waiters(None);
        }
    }

    /// Tells those who waited for the content that was written, or was not.
    fn end_file_waiters(&mut self, error: Option<&Error>) {
        for ticket in std::mem::take(&mut self.file_waiters.now) {
            let result = error.map_or(Ok(Answer::Nothing), |error| Err(error.clone()));
            self.done(ticket, result);
        }
    }

    /// Nothing is written any more.
    pub(super) fn give_up_file_waiters(&mut self) {
        let waiters = &mut self.file_waiters;
        waiters.now.append(&mut waiters.next);
        self.end_file_waiters(Some(&ErrorKind::NotRunning.into()));
    }

    /// Writes the file, if it says something else.
    pub(super) fn store_file(&mut self) {
        let due = self
            .owned
            .iter()
            .filter(|(_, own)| matches!(own.phase, Phase::Active) && self.may_store_of(own));
        let due: Vec<_> = due.map(|(q, own)| (q.clone(), own.commit.value)).collect();
        for (queue, offset) in due {
            self.file.set(&queue, offset);
        }
        if !self.file.changed || self.storing.is_some() {
            return;
        }
        self.file.changed = false;
        let waiters = &mut self.file_waiters;
        waiters.now.append(&mut waiters.next);
        let content = self.file.to_json();
        match self.file.content.clone() {
            Some(before) => {
                let file = self.backup();
                self.storing = Some(Storing::Backup(content));
                let content = before;
                self.effects.push(Effect::StoreOffsets { file, content });
            }
            None => self.store_new(content),
        }
    }

    fn store_new(&mut self, content: Vec<u8>) {
        let file = self.file();
        self.storing = Some(Storing::File(content.clone()));
        self.effects.push(Effect::StoreOffsets { file, content });
    }

    /// How it went with the file that was to be written.
    pub fn offsets_stored(&mut self, _now: u64, result: Result<(), FileFault>) {
        let Some(storing) = self.storing.take() else {
            return;
        };
        match (result, storing) {
            (Ok(()), Storing::Backup(content)) => self.store_new(content),
            (Ok(()), Storing::File(content)) => {
                self.file.content = Some(content);
                self.end_file_waiters(None);
            }
            (Err(fault), _) => {
                let error = self.file_fault(fault);
                // Tried again at the next turn; at the end there is none.
                self.file.changed = self.life == Life::Running;
                if !self.file.changed {
                    let waiters = &mut self.file_waiters;
                    waiters.now.append(&mut waiters.next);
                }
                self.end_file_waiters(Some(&error));
                self.lose(error);
            }
        }
        if !self.file_waiters.next.is_empty() {
            self.store_file();
        }
        self.stop_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_java_clients_file_is_read() {
        // As `OffsetSerializeWrapper.toJson(true)` of 5.5.0 writes it.
        let java = "{\n\t\"offsetTable\":{\n\t\t{\n\t\t\t\"brokerName\":\"broker-a\",\n\t\t\t\"queueId\":1,\n\t\t\t\"topic\":\"topic_test\"\n\t\t}:7,\n\t\t{\n\t\t\t\"brokerName\":\"broker-a\",\n\t\t\t\"queueId\":0,\n\t\t\t\"topic\":\"topic_test\"\n\t\t}:5\n\t}\n}";
        let table = OffsetTable::parse(java.as_bytes()).unwrap();
        let queue = |id| MessageQueue::new("topic_test", "broker-a", id);
        assert_eq!(table.get(&queue(0)), Some(5));
        assert_eq!(table.get(&queue(1)), Some(7));
        assert_eq!(table.get(&queue(2)), None);
        assert_eq!(
            String::from_utf8(table.to_json()).unwrap(),
            r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"topic_test"}:5,{"brokerName":"broker-a","queueId":1,"topic":"topic_test"}:7}}"#
        );
    }

    #[test]
    fn a_garbled_file_is_told() {
        for garbled in ["", "{", "{\"offsetTable\":{\"x\":1}}", "[1]", "\u{0}\u{0}"] {
            assert!(
                OffsetTable::parse(garbled.as_bytes()).is_err(),
                "{garbled:?}"
            );
        }
        assert!(OffsetTable::parse(b"{}").is_ok());
    }
}
