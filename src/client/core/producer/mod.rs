//! Producers: what they have in flight, and where it goes.
//!
//! | file | what it decides |
//! | --- | --- |
//! | [`check`] | what can be sent at all |
//! | [`unique_key`] | the client's ids of messages |
//! | [`compress`] | bodies made smaller, and large again |
//! | [`prepare`] | all that is done to a message on its caller's thread |
//! | [`select`] | which queue |
//! | [`fault`] | which brokers are avoided |
//! | `send` | the tries of a send, and how it ends |
//! | `answer` | what a broker's answer means |
//! | `waiting` | who waits for a route |
//! | `hooked` | hooks |
//! | `stop` | beginning and end of a producer, its detector |

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashMap;

use super::Core;
use super::io::{Outgoing, ProducerId, Ticket};
use crate::client::error::{Error, ErrorKind, Result};
use crate::client::message::SendResult;
use crate::client::settings::ProducerSettings;
use crate::wire::send_request::SendTemplate;

mod answer;
pub mod check;
pub mod compress;
pub mod fault;
mod hooked;
pub mod prepare;
pub mod select;
mod send;
mod stop;
pub mod unique_key;
mod waiting;

use fault::Faults;
use stop::Stopping;

/// A send in flight: its place, and how often the place was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SendId {
    slot: u32,
    epoch: u32,
}

/// All producers of a client, and their sends.
#[derive(Debug)]
pub(super) struct Producers {
    /// By place; a place is used again once its producer has ended.
    list: Vec<Option<Producer>>,
    sends: Vec<Slot>,
    free: Vec<u32>,
    /// Sends that wait for a route, by deadline.
    waiting: BTreeSet<(u64, SendId)>,
    queue_waits: Vec<QueueWait>,
    /// The region that a broker named last.
    region: Arc<str>,
}

impl Default for Producers {
    fn default() -> Producers {
        Producers {
            list: Vec::new(),
            sends: Vec::new(),
            free: Vec::new(),
            waiting: BTreeSet::new(),
            queue_waits: Vec::new(),
            region: Arc::from(""),
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    epoch: u32,
    send: Option<Send>,
}

/// One that waits for the queues of a topic.
#[derive(Debug)]
struct QueueWait {
    ticket: Ticket,
    topic: u32,
    began: u64,
    deadline: u64,
}

#[derive(Debug)]
struct Producer {
    id: ProducerId,
    settings: Arc<ProducerSettings>,
    faults: Faults,
    topics: Vec<ProducerTopic>,
    by_topic: HashMap<Arc<str>, u32>,
    in_flight: usize,
    in_flight_bytes: usize,
    stopping: Option<Stopping>,
    /// When the detector looks next, ms.
    probe_at: u64,
}

/// A topic that a producer sends to.
#[derive(Debug)]
struct ProducerTopic {
    /// Its number in the client's table.
    topic: u32,
    template: SendTemplate,
    /// Whose turn it is among the queues.
    cursor: u32,
}

/// One send in flight.
#[derive(Debug)]
struct Send {
    ticket: Ticket,
    /// Place of its producer.
    producer: u32,
    /// Place of its topic among those of the producer.
    topic: u32,
    what: Box<Outgoing>,
    began: u64,
    deadline: u64,
    /// Tries so far, this one included.
    tries: u32,
    /// When this try began.
    try_at: u64,
    /// The queue of this try.
    broker: u32,
    broker_name: Option<Arc<str>>,
    queue_id: i32,
    /// Whether it has waited for a route already.
    waited: bool,
    /// How it has entered the requests, where it has no answer.
    one_way: Option<(i32, super::io::PeerId)>,
    /// It is stored, but not as safely as wanted, and is tried elsewhere.
    stored: Option<SendResult>,
}

impl Producers {
    /// Groups, for heartbeats.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        let live = self.list.iter().flatten();
        live.map(|producer| &producer.settings.group)
    }

    pub fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// The next time at which something is due, ms.
    pub fn next_wake(&self) -> Option<u64> {
        let mut wake = self.waiting.first().map(|&(deadline, _)| deadline);
        let mut earlier = |at: u64| wake = Some(wake.map_or(at, |wake: u64| wake.min(at)));
        for wait in &self.queue_waits {
            earlier(wait.deadline);
        }
        for producer in self.list.iter().flatten() {
            if let Some(stopping) = &producer.stopping {
                earlier(stopping.deadline);
            }
            if producer.faults.unreachable().next().is_some() && producer.detects() {
                earlier(producer.probe_at);
            }
        }
        wake
    }

    fn place_of(&self, id: ProducerId) -> Option<u32> {
        let mut list = self.list.iter();
        let place = list.position(|producer| producer.as_ref().is_some_and(|p| p.id == id))?;
        Some(place as u32)
    }

    fn producer(&mut self, place: u32) -> &mut Producer {
        let producer = self.list[place as usize].as_mut();
        producer.expect("a producer stays as long as it has sends")
    }

    fn get(&mut self, id: SendId) -> Option<&mut Send> {
        let slot = self.sends.get_mut(id.slot as usize)?;
        if slot.epoch != id.epoch {
            return None;
        }
        slot.send.as_mut()
    }

    fn insert(&mut self, send: Send) -> SendId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sends.push(Slot::default());
            self.sends.len() as u32 - 1
        });
        let place = &mut self.sends[slot as usize];
        place.send = Some(send);
        SendId {
            slot,
            epoch: place.epoch,
        }
    }

    fn remove(&mut self, id: SendId) -> Option<Send> {
        let slot = self.sends.get_mut(id.slot as usize)?;
        if slot.epoch != id.epoch {
            return None;
        }
        let send = slot.send.take()?;
        slot.epoch = slot.epoch.wrapping_add(1);
        self.free.push(id.slot);
        let producer = self.producer(send.producer);
        producer.in_flight -= 1;
        producer.in_flight_bytes -= send.what.bytes();
        Some(send)
    }

    /// Sends of one producer.
    fn of(&self, place: u32) -> Vec<SendId> {
        let slots = self.sends.iter().enumerate();
        let mine = slots.filter(|(_, slot)| {
            let send = slot.send.as_ref();
            send.is_some_and(|send| send.producer == place)
        });
        mine.map(|(slot, of)| SendId {
            slot: slot as u32,
            epoch: of.epoch,
        })
        .collect()
    }

    /// A broker is gone from all routes.
    pub fn forget_broker(&mut self, broker: u32) {
        for producer in self.list.iter_mut().flatten() {
            producer.faults.forget(broker);
        }
    }

    /// A broker answered the detector.
    pub fn probed(&mut self, producer: ProducerId, broker: u32) {
        if let Some(place) = self.place_of(producer) {
            self.producer(place).faults.found(broker);
        }
    }

    /// Enters who waits for the queues of a topic.
    pub fn wait_for_queues(
        &mut self,
        now: super::io::Now,
        ticket: Ticket,
        topic: u32,
        timeout_ms: u64,
    ) {
        self.queue_waits.push(QueueWait {
            ticket,
            topic,
            began: now.at,
            deadline: now.at.saturating_add(timeout_ms),
        });
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> (usize, usize) {
        let producers = self.list.iter().flatten();
        producers.fold((0, 0), |(count, bytes), producer| {
            (count + producer.in_flight, bytes + producer.in_flight_bytes)
        })
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.sends.len()
    }
}

impl Producer {
    fn detects(&self) -> bool {
        self.settings.start_detector_enable && self.faults.is_enabled()
    }

    /// Whether there is room for one more send of so many bytes.
    fn admit(&self, bytes: usize) -> Result<()> {
        let (what, limit) = if self.in_flight >= self.settings.in_flight_max {
            ("in_flight_max", self.settings.in_flight_max)
        } else if self.in_flight > 0
            && self.in_flight_bytes + bytes > self.settings.in_flight_bytes_max
        {
            ("in_flight_bytes_max", self.settings.in_flight_bytes_max)
        } else {
            return Ok(());
        };
        let limit = limit as u64;
        Err(ErrorKind::TooMuchInFlight { what, limit }.into())
    }
}

impl Core {
    /// The place of a topic among those of a producer.
    fn producer_topic(&mut self, place: u32, name: &Arc<str>) -> Result<u32> {
        let producer = self.producers.producer(place);
        if let Some(&topic) = producer.by_topic.get(name) {
            return Ok(topic);
        }
        let Some(id) = self.routes.topic_id(name) else {
            let (what, limit) = ("topics of a client", super::routes::TOPICS_MAX as u64);
            return Err(ErrorKind::TooMuchInFlight { what, limit }.into());
        };
        let settings = &producer.settings;
        let template = (
            settings.create_topic_key.clone(),
            settings.default_topic_queue_nums,
        );
        self.routes.topic_mut(id).template.get_or_insert(template);
        producer.topics.push(ProducerTopic {
            topic: id,
            template: SendTemplate::new(
                &settings.group,
                name,
                &settings.create_topic_key,
                settings.default_topic_queue_nums,
            ),
            cursor: self.random.next() as u32 >> 1,
        });
        let topic = producer.topics.len() as u32 - 1;
        producer.by_topic.insert(name.clone(), topic);
        Ok(topic)
    }

    /// The number of a topic that a producer sends to.
    pub(super) fn topic_for(&mut self, id: ProducerId, name: &Arc<str>) -> Result<u32> {
        check::check_topic(name)?;
        let Some(place) = self.producers.place_of(id) else {
            return Err(Error::new(ErrorKind::NotRunning));
        };
        let topic = self.producer_topic(place, name)?;
        Ok(self.producers.producer(place).topics[topic as usize].topic)
    }
}
