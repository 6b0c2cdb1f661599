//! All queues of a topic are read side by side, without a group and without a trace at the broker.

use crate::cli::admin::{Context, fits};
use crate::cli::show::{Failure, exit, now_ms};
use ringmq::client::admin::{Admin, AdminError, StoredMessage, TOOLS_GROUP};
use std::time::{Duration, Instant};

/// Messages that one pull asks for.
const PULL_MESSAGES: i32 = 32;
/// Between two looks at the route.
const REFRESH: Duration = Duration::from_secs(30);
/// Until a broker that failed is asked again, and the route with it; at least.
const BROKER_REST: Duration = Duration::from_secs(1);
/// The same while the route cannot be had, or brokers are missing from it.
const ROUTE_REST: Duration = Duration::from_secs(5);
/// No rest is longer.
const REST_MAX: Duration = Duration::from_secs(60);

/// How long who failed rests: who is silent is waited for a fifth of the time, and no more.
fn rest_after(began: Instant, least: Duration) -> Duration {
    (began.elapsed() * 4).clamp(least, REST_MAX)
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At the oldest message.
    First,
    /// Behind the newest message.
    Last,
    /// At what was stored then, ms since 1970.
    Time(i64),
    /// At this offset of every queue.
    Offset(i64),
}

/// One queue and how far it is read.
#[derive(Debug)]
struct Queue {
    id: i32,
    next: i64,
    /// Where it ends when reading is not to go on; who follows keeps where it has ended.
    end: i64,
    /// The route has it. One that comes back goes on where it was.
    there: bool,
}

/// The queues of one broker.
#[derive(Debug)]
struct Part {
    broker: String,
    address: String,
    queues: Vec<Queue>,
    /// It has failed, and is not asked before.
    rests_until: Option<Instant>,
}

impl Part {
    fn is_there(&self) -> bool {
        self.queues.iter().any(|queue| queue.there)
    }
}

/// Why something could not be read.
#[derive(Debug)]
pub struct Fault {
    /// What went wrong.
    pub failure: Failure,
    /// It may be better later.
    pub passes: bool,
}

impl std::convert::From<AdminError> for Fault {
    fn from(error: AdminError) -> Fault {
        let retryable = error.is_retryable();
        let failure = Failure::from(error);
        Fault {
            passes: retryable || failure.code == exit::FAILED,
            failure,
        }
    }
}

/// What one look at all queues comes to.
#[derive(Debug, Default)]
pub struct Round {
    /// What was found, messages of one queue in their order.
    pub messages: Vec<StoredMessage>,
    /// What could not be read: the messages are there all the same. For who follows, one that
    /// passes is told once, however often it is tried again.
    pub faults: Vec<Fault>,
    /// What else there is to tell.
    pub notes: Vec<String>,
    /// All is read.
    pub done: bool,
}

/// A topic that is read.
pub struct Tail {
    topic: String,
    only: Option<(String, i32)>,
    expression: String,
    from: From,
    parts: Vec<Part>,
    /// When the route is looked at again.
    refresh_at: Instant,
    /// The route, or the beginning of a queue, could not be had.
    lost_route: bool,
    /// What of that is to be told with the first round.
    at_start: Option<Fault>,
}

impl Tail {
    /// Finds the queues, or takes the one that is given, and where to begin in each. Who is to
    /// `follow` finds those of a broker that does not answer when it does.
    ///
    /// # Errors
    /// The topic is not there, or a broker does not answer.
    pub fn new(
        context: &mut Context,
        topic: &str,
        only: Option<&(String, i32)>,
        expression: &str,
        from: From,
        follow: bool,
    ) -> Result<Tail, Failure> {
        let began_ms = now_ms();
        let mut tail = Tail {
            topic: topic.to_owned(),
            only: only.cloned(),
            expression: expression.to_owned(),
            from,
            parts: Vec::new(),
            refresh_at: Instant::now() + REFRESH,
            lost_route: false,
            at_start: None,
        };
        if let Err(error) = tail.refresh(&mut context.admin) {
            let fault = Fault::from(error);
            if !(follow && fault.passes) {
                return Err(fault.failure);
            }
            tail.at_start = Some(fault);
            tail.lost_route = true;
            tail.refresh_at = Instant::now() + BROKER_REST;
        }
        if from == From::Last {
            // What is found later is read from now on: all of it, but where a broker was silent.
            tail.from = match tail.at_start {
                Some(_) => From::Time(began_ms),
                None => From::First,
            };
        }
        match (tail.parts.is_empty() && tail.at_start.is_none(), only) {
            (true, Some((broker, id))) => Err(Failure::not_found(format!(
                "topic {topic:?} has no queue {id} on broker {broker:?} that can be read"
            ))
            .hint(format!(
                "`ringmq admin topicRoute -t {topic}` shows its queues"
            ))),
            (true, None) => Err(Failure::not_found(format!(
                "topic {topic:?} has no queue that can be read"
            ))),
            _ => Ok(tail),
        }
    }

    /// Takes over which queues there are, and where their brokers are.
    fn refresh(&mut self, admin: &mut Admin) -> Result<(), AdminError> {
        let route = admin.route(&self.topic)?;
        let brokers = admin.brokers_of_topic(&self.topic)?;
        let queues = self.parts.iter_mut().flat_map(|part| &mut part.queues);
        queues.for_each(|queue| queue.there = false);
        let mut fresh = Vec::new();
        for (broker, address) in brokers {
            let mut data = route.queue_datas.iter();
            let data = data.find(|data| data.broker_name == broker && data.perm & 4 != 0);
            let mut known = self.parts.iter_mut().find(|part| part.broker == broker);
            if let Some(part) = &mut known {
                if part.address != address {
                    // Another place need not rest, and may be behind.
                    part.queues.iter_mut().for_each(|queue| queue.end = 0);
                    part.rests_until = part.rests_until.map(|_| Instant::now());
                    part.address.clone_from(&address);
                }
            }
            for id in 0..data.map_or(0, |data| data.read_queue_nums) {
                if let Some((name, wanted)) = &self.only
                    && (*name != broker || *wanted != id)
                {
                    continue;
                }
                let part = known.as_deref_mut();
                match part.and_then(|part| part.queues.iter_mut().find(|queue| queue.id == id)) {
                    Some(queue) => queue.there = true,
                    None => fresh.push((broker.clone(), address.clone(), id)),
                }
            }
        }
        // A broker that fails keeps nobody from the queues of another.
        let mut failed: Option<(String, AdminError)> = None;
        for (broker, address, id) in fresh {
            if failed.as_ref().is_some_and(|(name, _)| *name == broker) {
                continue;
            }
            let queue = match self.begin(admin, &address, id) {
                Ok(queue) => queue,
                Err(error) => {
                    failed = Some((broker.clone(), error.broker(&broker)));
                    continue;
                }
            };
            match self.parts.iter_mut().find(|part| part.broker == broker) {
                Some(part) => part.queues.push(queue),
                None => self.parts.push(Part {
                    broker,
                    address,
                    queues: vec![queue],
                    rests_until: None,
                }),
            }
        }
        match failed {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn begin(&self, admin: &mut Admin, address: &str, id: i32) -> Result<Queue, AdminError> {
        let topic = &self.topic;
        let end = admin.max_offset(address, topic, id)?;
        let next = match self.from {
            From::First => admin.min_offset(address, topic, id)?,
            From::Last => end,
            From::Time(time) => admin.search_offset(address, topic, id, time)?,
            From::Offset(offset) => offset,
        };
        Ok(Queue {
            id,
            next,
            end,
            there: true,
        })
    }

    /// One pull of every queue that is not at its end. Without `follow` what came after the
    /// beginning is left out; with it, queues and brokers that come and go are noticed, and a
    /// broker that fails holds up no other.
    pub fn round(&mut self, context: &mut Context, follow: bool) -> Round {
        let admin = &mut context.admin;
        let mut round = Round {
            done: true,
            faults: self.at_start.take().into_iter().collect(),
            ..Round::default()
        };
        if follow && Instant::now() >= self.refresh_at {
            round.faults.extend(self.look_again(admin));
        }
        for at in 0..self.parts.len() {
            let began = Instant::now();
            match self.pull(admin, at, follow, &mut round) {
                Ok(open) => round.done &= !open,
                Err(error) => {
                    round.done = false;
                    let rest = rest_after(began, BROKER_REST);
                    let faults = self.failed(admin, at, follow.then_some(rest), error);
                    round.faults.extend(faults);
                }
            }
        }
        round.done &= !follow;
        round
    }

    /// Asks for the route. Who cannot have it goes on with what is known, which is told once.
    fn look_again(&mut self, admin: &mut Admin) -> Option<Fault> {
        let began = Instant::now();
        let refreshed = self.refresh(admin);
        let rest = match refreshed.is_ok() && self.parts.iter().all(Part::is_there) {
            true => REFRESH,
            false => rest_after(began, ROUTE_REST),
        };
        self.refresh_at = Instant::now() + rest;
        let was_lost = std::mem::replace(&mut self.lost_route, refreshed.is_err());
        let error = refreshed.err().filter(|_| !was_lost)?;
        Some(Fault {
            passes: true,
            ..Fault::from(error)
        })
    }

    /// A broker could not be read from, and has a rest where it is followed. Nothing is left of it
    /// where the topic is no longer there, or it is known to have failed.
    fn failed(
        &mut self,
        admin: &mut Admin,
        at: usize,
        rest: Option<Duration>,
        error: AdminError,
    ) -> Vec<Fault> {
        let part = &mut self.parts[at];
        let fault = Fault::from(error.broker(&part.broker));
        let Some(rest) = rest else {
            return vec![fault];
        };
        let is_known = part.rests_until.is_some();
        let now = Instant::now();
        part.rests_until = Some(now + rest);
        if !self.lost_route {
            self.refresh_at = self.refresh_at.min(now + BROKER_REST);
        }
        if fault.passes {
            return Vec::from_iter((!is_known).then_some(fault));
        }
        let mut faults = Vec::from_iter(self.look_again(admin));
        if self.parts[at].is_there() {
            faults.push(fault);
        }
        faults
    }

    /// One pull of the queues of one broker. Whether there may be more.
    fn pull(
        &mut self,
        admin: &mut Admin,
        at: usize,
        follow: bool,
        round: &mut Round,
    ) -> Result<bool, AdminError> {
        let part = &mut self.parts[at];
        if part.rests_until.is_some_and(|until| Instant::now() < until) {
            return Ok(true);
        }
        let queues = part.queues.iter_mut();
        let mut queues: Vec<&mut Queue> = queues
            .filter(|queue| queue.there && (follow || queue.next < queue.end))
            .collect();
        if queues.is_empty() {
            return Ok(false);
        }
        let places: Vec<(i32, i64)> = queues.iter().map(|queue| (queue.id, queue.next)).collect();
        let pulled = admin.pull_all(
            &part.address,
            TOOLS_GROUP,
            &self.topic,
            &places,
            PULL_MESSAGES,
            &self.expression,
        )?;
        part.rests_until = None;
        for (queue, pulled) in queues.iter_mut().zip(pulled) {
            let before = queue.next;
            if follow && pulled.max < queue.end.min(queue.next) {
                round.notes.push(format!(
                    "queue {} of {:?} on {} was read up to {} and now ends at {}: it was made anew, \
                     and is read from its beginning",
                    queue.id, self.topic, part.broker, queue.next, pulled.max
                ));
                (queue.next, queue.end) = (pulled.min, pulled.max);
                continue;
            }
            for message in pulled.messages {
                // What a broker sends twice is shown once.
                let is_new = message.queue_offset >= queue.next;
                if is_new && (follow || message.queue_offset < queue.end) {
                    queue.next = message.queue_offset + 1;
                    if fits(&message, &self.expression) {
                        round.messages.push(message);
                    }
                }
            }
            queue.next = queue.next.max(pulled.next);
            if follow {
                queue.end = queue.end.max(pulled.max);
            } else if queue.next == before {
                // A queue that does not move on is over.
                queue.end = before;
            }
        }
        Ok(true)
    }
}
