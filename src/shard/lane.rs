//! Lanes: bounded queues between shards, one each way, requests apart from replies.
//!
//! A message is put into an outbox; one task per outbox carries what gathered in
//! a turn as one batch, with one wake-up. The outbox itself is bounded by those
//! who fill it: a shard forwards only so many requests before it waits for their
//! replies.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flume::{Receiver, Sender};

use super::{LocalEvent, Service, ShardId, next_turn, spawn};
use crate::reactor::{receive, send, turn_began};

/// Batches that a lane holds. A full lane makes its outbox wait; nothing is dropped.
const LANE_BATCHES: usize = 1024;

/// Messages of a batch between two looks at the clock.
const MESSAGES_PER_LOOK: usize = 64;

/// Time after which a batch lets others run.
const TURN_PART: Duration = Duration::from_millis(1);

/// Which of the two lanes between two shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Work for the other shard; it may have to wait for room there.
    Request,
    /// Answers and notices: never waits behind requests.
    Reply,
}

struct Pair<T> {
    request: T,
    reply: T,
}

/// One shard's ends of all lanes.
pub struct LaneEnds<M> {
    to: Vec<Pair<Sender<Vec<M>>>>,
    from: Vec<Pair<Receiver<Vec<M>>>>,
}

/// Lanes between `count` shards: the ends for each of them. A shard has lanes to
/// itself too, so that nobody needs to ask where a message goes.
pub fn mesh<M>(count: usize) -> Vec<LaneEnds<M>> {
    let mut ends: Vec<LaneEnds<M>> = (0..count)
        .map(|_| LaneEnds {
            to: Vec::new(),
            from: Vec::new(),
        })
        .collect();
    for source in 0..count {
        for target in 0..count {
            let (request, request_end) = flume::bounded(LANE_BATCHES);
            let (reply, reply_end) = flume::bounded(LANE_BATCHES);
            ends[source].to.push(Pair { request, reply });
            ends[target].from.push(Pair {
                request: request_end,
                reply: reply_end,
            });
        }
    }
    ends
}

struct Gathered<M> {
    messages: RefCell<Vec<M>>,
    event: LocalEvent,
}

/// What waits to be carried to one shard.
pub(super) struct Outbox<M> {
    lanes: Pair<Rc<Gathered<M>>>,
}

impl<M: Send + 'static> Outbox<M> {
    pub fn push(&self, kind: LaneKind, message: M) {
        let gathered = match kind {
            LaneKind::Request => &self.lanes.request,
            LaneKind::Reply => &self.lanes.reply,
        };
        let mut messages = gathered.messages.borrow_mut();
        if messages.is_empty() {
            gathered.event.notify();
        }
        messages.push(message);
    }
}

impl<M: Send + 'static> LaneEnds<M> {
    /// The outboxes of this shard, with a task for each that empties it.
    pub(super) fn outboxes(&self) -> Vec<Outbox<M>> {
        let start = |sender: &Sender<Vec<M>>| {
            let gathered = Rc::new(Gathered {
                messages: RefCell::default(),
                event: LocalEvent::default(),
            });
            let (outbox, sender) = (gathered.clone(), sender.clone());
            spawn("messages to another shard", async move {
                loop {
                    let batch = outbox.messages.take();
                    if batch.is_empty() {
                        outbox.event.wait().await;
                    } else if send(&sender, batch).await.is_err() {
                        return;
                    }
                }
            });
            gathered
        };
        self.to
            .iter()
            .map(|pair| Outbox {
                lanes: Pair {
                    request: start(&pair.request),
                    reply: start(&pair.reply),
                },
            })
            .collect()
    }

    /// Hands what arrives on this shard's lanes to its service, from now on.
    pub fn receive<S: Service<Message = M>>(self, service: &Rc<S>) {
        for (source, pair) in self.from.into_iter().enumerate() {
            for lane in [pair.request, pair.reply] {
                let service = service.clone();
                let from = ShardId(source as u16);
                spawn("messages of another shard", async move {
                    while let Ok(batch) = receive(&lane).await {
                        hand_over(&*service, from, batch).await;
                    }
                });
            }
        }
    }
}

async fn hand_over<S: Service>(service: &S, from: ShardId, batch: Vec<S::Message>) {
    for (n, message) in batch.into_iter().enumerate() {
        if n % MESSAGES_PER_LOOK == MESSAGES_PER_LOOK - 1 && turn_began().elapsed() > TURN_PART {
            service.turn_end();
            next_turn().await;
        }
        let mut pending = Some(message);
        while let Some(message) = pending.take() {
            pending = service.message(from, message);
            if pending.is_some() {
                service.turn_end();
                service.room().wait().await;
            }
        }
    }
    service.turn_end();
}
