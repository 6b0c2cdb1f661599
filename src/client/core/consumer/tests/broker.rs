//! A simulated broker: answers as `crate::broker` does, at the level of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Ledger;
use crate::client::core::io::Outgoing;
use crate::wire::batch;
use crate::wire::body::json;
use crate::wire::body::lock::LockBatchBody;
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};
use crate::wire::java_hash::java_hash;
use crate::wire::message::{Parts, Record, Stamp, body_crc};
use crate::wire::names::{RETRY_PREFIX, dlq_topic, retry_topic};
use crate::wire::properties::{self, name};

const LOCK_MS: u64 = 60_000;
/// Delay of every retry, ms; levels are the broker's business.
const RETRY_MS: u64 = 2000;

#[derive(Default)]
pub struct Queue {
    pub min: i64,
    /// Empty at the further offsets of a batch.
    pub records: Vec<Vec<u8>>,
}

impl Queue {
    pub fn max(&self) -> i64 {
        self.min + self.records.len() as i64
    }
}

/// A pull that waits for messages.
pub struct Held {
    pub client: usize,
    pub call: u64,
    pub request: Request,
    pub until: u64,
}

/// A message that waits: when it is due, its topic, tries, body and properties.
pub type Delayed = (u64, String, i32, Vec<u8>, Vec<u8>);

#[derive(Default)]
pub struct Broker {
    pub name: Arc<str>,
    pub queues: BTreeMap<(String, i32), Queue>,
    pub offsets: BTreeMap<(String, String, i32), i64>,
    locks: BTreeMap<(String, String, i32), (String, u64)>,
    pub members: BTreeMap<String, BTreeSet<String>>,
    log: BTreeMap<i64, Vec<u8>>,
    pub held: Vec<Held>,
    /// Retries by due time.
    pub delayed: Vec<Delayed>,
    next_physical: i64,
    /// Refuses what is sent back.
    pub refuse_back: bool,
    /// Refuses offsets.
    pub refuse_commits: bool,
    /// Answers every pull at once.
    pub never_holds: bool,
    /// Knows no group and makes none, but answers heartbeats as if it did.
    pub ignores_members: bool,
    /// Lists members as often as they have connections, two each.
    pub lists_twice: bool,
    pub pulls: u64,
}

impl Broker {
    pub fn new(name: &str) -> Broker {
        Broker {
            name: name.into(),
            next_physical: 1000,
            ..Broker::default()
        }
    }

    pub fn add_topic(&mut self, topic: &str, queues: i32) {
        for id in 0..queues {
            self.queues.entry((topic.to_owned(), id)).or_default();
        }
    }

    pub fn put(&mut self, topic: &str, id: i32, times: i32, body: &[u8], properties: &[u8]) {
        self.put_with(topic, id, (times, 0), body, properties);
    }

    /// Stores an encoded batch as one message; with `counted`, it takes as many offsets as it
    /// has messages.
    pub fn put_batch(&mut self, topic: &str, id: i32, bodies: &[String], counted: bool) {
        let mut batch = Vec::new();
        for body in bodies {
            let body = body.as_bytes();
            let item = batch::Item {
                flag: 0,
                body,
                properties: b"",
            };
            batch::push(&mut batch, &item);
        }
        let mut properties = Vec::new();
        if counted {
            let base = self.queues[&(topic.to_owned(), id)].max();
            for (name, value) in [("INNER_NUM", bodies.len() as i64), ("INNER_BASE", base)] {
                properties::push(&mut properties, name, value.to_string().as_bytes());
            }
        }
        self.put_with(topic, id, (0, 0x40 | 0x80), &batch, &properties);
        if counted {
            let queue = self
                .queues
                .get_mut(&(topic.to_owned(), id))
                .expect("a queue");
            let holes = queue.records.len() + bodies.len() - 1;
            queue.records.resize(holes, Vec::new());
        }
    }

    fn put_with(
        &mut self,
        topic: &str,
        id: i32,
        (times, sys_flag): (i32, i32),
        body: &[u8],
        properties: &[u8],
    ) {
        let physical_offset = self.next_physical;
        let queue = self
            .queues
            .get_mut(&(topic.to_owned(), id))
            .expect("a queue");
        let host = ([127, 0, 0, 1], 10911).into();
        let parts = Parts {
            queue_id: id,
            flag: 0,
            sys_flag,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: times,
            prepared_offset: 0,
            body,
            body_crc: body_crc(body),
            topic: topic.as_bytes(),
            properties,
        };
        let stamp = Stamp {
            queue_offset: queue.max(),
            physical_offset,
            store_timestamp: 0,
        };
        let mut record = Vec::new();
        parts.write(&stamp, |piece| record.extend_from_slice(piece));
        self.next_physical += record.len() as i64;
        self.log.insert(physical_offset, record.clone());
        queue.records.push(record);
    }

    pub fn lock_owner(&self, group: &str, topic: &str, id: i32, now: u64) -> Option<&str> {
        let key = (group.to_owned(), topic.to_owned(), id);
        let (owner, at) = self.locks.get(&key)?;
        (now - at <= LOCK_MS).then_some(owner)
    }

    /// A client is gone: its membership and its locks end.
    pub fn forget(&mut self, group: &str, client: &str) -> bool {
        self.locks.retain(|_, (owner, _)| owner != client);
        let members = self.members.entry(group.to_owned()).or_default();
        members.remove(client)
    }

    /// The answer; `None` for a pull that is held.
    pub fn answer(
        &mut self,
        now: u64,
        client: usize,
        call: u64,
        request: &Request,
        ledger: &mut Ledger,
    ) -> Option<Response> {
        Some(match request.fixed.code {
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let group = request.get("consumerGroup").unwrap();
                match self
                    .members
                    .get(group)
                    .filter(|members| !members.is_empty())
                {
                    Some(members) => {
                        let times = if self.lists_twice { 2 } else { 1 };
                        let ids: Vec<&String> =
                            members.iter().flat_map(|id| vec![id; times]).collect();
                        Response::body(json::encode(&serde_json::json!({"consumerIdList": ids})))
                    }
                    None => Response::error(response::SYSTEM_ERROR, "no members"),
                }
            }
            request::QUERY_CONSUMER_OFFSET => match self.offsets.get(&key(request)) {
                Some(offset) => Response::ok().with("offset", offset),
                None => Response::error(response::QUERY_NOT_FOUND, "none"),
            },
            request::UPDATE_CONSUMER_OFFSET if self.refuse_commits => {
                Response::error(response::SYSTEM_ERROR, "no offsets today")
            }
            request::UPDATE_CONSUMER_OFFSET => {
                let offset = request.int("commitOffset").unwrap();
                self.commit(request, offset, ledger);
                Response::ok()
            }
            request::GET_MAX_OFFSET => Response::ok().with("offset", self.queue(request).max()),
            request::GET_MIN_OFFSET => Response::ok().with("offset", self.queue(request).min),
            request::SEARCH_OFFSET_BY_TIMESTAMP => {
                Response::ok().with("offset", self.queue(request).min + 1)
            }
            request::LOCK_BATCH_MQ => self.lock(now, request),
            request::UNLOCK_BATCH_MQ => {
                let body: LockBatchBody = json::parse(&request.body).unwrap();
                for queue in body.mq_set {
                    let key = (body.consumer_group.clone(), queue.topic, queue.queue_id);
                    if self
                        .locks
                        .get(&key)
                        .is_some_and(|(owner, _)| *owner == body.client_id)
                    {
                        self.locks.remove(&key);
                    }
                }
                Response::ok()
            }
            request::CONSUMER_SEND_MSG_BACK => self.send_back(now, request, ledger),
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => {
                self.pulls += 1;
                let flags: i32 = request.int("sysFlag").unwrap();
                if flags & 1 != 0 {
                    let offset = request.int("commitOffset").unwrap();
                    self.commit(request, offset, ledger);
                }
                let answer = self.pull(request);
                if answer.code == response::PULL_NOT_FOUND && !self.never_holds {
                    let wait: u64 = request.int("suspendTimeoutMillis").unwrap();
                    self.held.push(Held {
                        client,
                        call,
                        request: request.clone(),
                        until: now + wait,
                    });
                    return None;
                }
                answer
            }
            code => Response::not_supported(code),
        })
    }

    fn queue(&self, request: &Request) -> &Queue {
        let id: i32 = request.int("queueId").unwrap();
        let key = (request.get("topic").unwrap().to_owned(), id);
        self.queues.get(&key).unwrap_or_else(|| panic!("{key:?}"))
    }

    fn commit(&mut self, request: &Request, offset: i64, ledger: &mut Ledger) {
        let key = key(request);
        let queue = &self.queues[&(key.1.clone(), key.2)];
        // What was committed before was looked at then.
        let before = self.offsets.get(&key).copied().unwrap_or(0);
        for (at, record) in (queue.min..).zip(&queue.records) {
            if (before..offset).contains(&at) && !record.is_empty() {
                let record = Record::parse(record).unwrap();
                ledger.must_be_consumed(&self.name, &record, offset);
            }
        }
        self.offsets.insert(key, offset);
    }

    fn lock(&mut self, now: u64, request: &Request) -> Response {
        let body: LockBatchBody = json::parse(&request.body).unwrap();
        let mut locked = Vec::new();
        for queue in body.mq_set {
            let key = (
                body.consumer_group.clone(),
                queue.topic.clone(),
                queue.queue_id,
            );
            let free = match self.locks.get(&key) {
                None => true,
                Some((owner, at)) => *owner == body.client_id || now - at > LOCK_MS,
            };
            if free {
                self.locks.insert(key, (body.client_id.clone(), now));
                locked.push(queue);
            }
        }
        Response::body(json::encode(&serde_json::json!({"lockOKMQSet": locked})))
    }

    fn send_back(&mut self, now: u64, request: &Request, ledger: &mut Ledger) -> Response {
        if self.refuse_back {
            return Response::error(response::SYSTEM_ERROR, "no");
        }
        let physical: i64 = request.int("offset").unwrap();
        let group = request.get("group").unwrap();
        let record = self.log.get(&physical).cloned().expect("a record");
        let record = Record::parse(&record).unwrap();
        let max: i32 = request.int("maxReconsumeTimes").unwrap();
        let mut kept = record.properties().to_vec();
        if properties::get(&kept, name::RETRY_TOPIC).is_none() {
            properties::push(&mut kept, name::RETRY_TOPIC, record.topic());
        }
        let times = record.reconsume_times();
        ledger.returned.insert((self.name.clone(), physical));
        if times >= max {
            ledger.dead.insert(record.body().to_vec());
        }
        let topic = if times >= max {
            dlq_topic(group)
        } else {
            retry_topic(group)
        };
        self.add_topic(&topic, 1);
        let due = now + RETRY_MS;
        self.delayed
            .push((due, topic, times + 1, record.body().to_vec(), kept));
        Response::ok()
    }

    /// A message sent to the retry topic like any other.
    pub fn send(&mut self, now: u64, outgoing: &Outgoing, ledger: &mut Ledger) {
        let (times, max) = outgoing.reconsume.expect("a retry");
        let group = outgoing
            .topic
            .strip_prefix(RETRY_PREFIX)
            .expect("a retry topic");
        assert!(properties::get(&outgoing.properties, name::DELAY).is_some());
        ledger.sent.insert(outgoing.body.to_vec());
        if times > max {
            ledger.dead.insert(outgoing.body.to_vec());
        }
        let topic = if times > max {
            dlq_topic(group)
        } else {
            outgoing.topic.to_string()
        };
        self.add_topic(&topic, 1);
        let (body, properties) = (outgoing.body.to_vec(), outgoing.properties.clone());
        self.delayed
            .push((now + RETRY_MS, topic, times, body, properties));
    }

    pub fn pull(&self, request: &Request) -> Response {
        let queue = self.queue(request);
        let offset: i64 = request.int("queueOffset").unwrap();
        let most: usize = request.int("maxMsgNums").unwrap();
        let subscription = request.get("subscription").unwrap_or("*");
        let tags = super::tags_of(request.get("topic").unwrap(), subscription);
        let answer = |code: i32, next: i64, body: Vec<u8>| Response {
            code,
            body: body.into(),
            ..Response::ok()
                .with("nextBeginOffset", next)
                .with("minOffset", queue.min)
                .with("maxOffset", queue.max())
                .with("suggestWhichBrokerId", 0)
        };
        if queue.max() == 0 && offset > 0 {
            return answer(response::PULL_OFFSET_MOVED, 0, Vec::new());
        }
        if offset < queue.min {
            return answer(response::PULL_OFFSET_MOVED, queue.min, Vec::new());
        }
        if offset > queue.max() {
            return answer(response::PULL_OFFSET_MOVED, queue.max(), Vec::new());
        }
        if offset == queue.max() {
            return answer(response::PULL_NOT_FOUND, offset, Vec::new());
        }
        let (mut body, mut count) = (Vec::new(), 0);
        // From the batch on that the offset lies in.
        let mut start = (offset - queue.min) as usize;
        while queue.records[start].is_empty() {
            start -= 1;
        }
        let mut next = queue.min + start as i64;
        for record in &queue.records[start..] {
            if record.is_empty() {
                next += 1;
                continue;
            }
            if count == most {
                break;
            }
            next += 1;
            let tag = Record::parse(record).unwrap();
            let tag = properties::get(tag.properties(), name::TAGS).unwrap_or_default();
            // By hash, as brokers do.
            let hashes: Vec<i32> = tags.iter().map(|tag| java_hash(tag.as_bytes())).collect();
            if hashes.is_empty() || hashes.contains(&java_hash(tag)) {
                body.extend_from_slice(record);
                count += 1;
            }
        }
        if count == 0 {
            return answer(response::PULL_RETRY_IMMEDIATELY, next, Vec::new());
        }
        answer(0, next, body)
    }
}

fn key(request: &Request) -> (String, String, i32) {
    let text = |name: &str| request.get(name).unwrap().to_owned();
    let id = request.int("queueId").unwrap();
    (text("consumerGroup"), text("topic"), id)
}
