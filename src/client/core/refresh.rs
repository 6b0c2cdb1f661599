//! Routes: asked for at first use, and every 30 s from then on
//! (`MQClientInstance.updateTopicRouteInfoFromNameServer`).

use std::collections::VecDeque;
use std::sync::Arc;

use super::ask::{Found, RouteAsk};
use super::io::{Now, Output};
use super::routes::{Change, Routes};
use super::{Core, done, io};
use crate::client::error::{Error, ErrorKind};

/// Most questions for known topics that are open at once.
const REFRESHES_MAX: usize = 16;
/// A topic whose route just failed someone is asked for again after this, ms.
const AGAIN_MS: u64 = 1_000;

/// When known topics are asked for next.
#[derive(Debug)]
pub(super) struct Refresh {
    next_at: u64,
    /// Topics whose turn it is.
    queue: VecDeque<u32>,
    open: usize,
}

impl Refresh {
    pub fn new(next_at: u64) -> Refresh {
        Refresh {
            next_at,
            queue: VecDeque::new(),
            open: 0,
        }
    }

    pub fn next_wake(&self, routes: &Routes) -> Option<u64> {
        (!routes.topic_ids().is_empty()).then_some(self.next_at)
    }
}

impl Core {
    pub(super) fn pass_refresh(&mut self, now: Now, out: &mut Vec<Output>) {
        if now.at >= self.refresh.next_at {
            self.refresh.next_at = now.at + self.settings.poll_name_server_interval_ms;
            if self.refresh.queue.is_empty() {
                self.refresh.queue.extend(self.routes.topic_ids());
            }
        }
        while self.refresh.open < REFRESHES_MAX {
            let Some(topic) = self.refresh.queue.pop_front() else {
                return;
            };
            if !self.routes.topic(topic).asking {
                self.refresh.open += 1;
                self.ask_route(now, topic, true, out);
            }
        }
    }

    /// Somebody needs the route of a topic now.
    pub(super) fn want_route(&mut self, now: Now, topic: u32, out: &mut Vec<Output>) {
        if !self.routes.topic(topic).asking {
            self.ask_route(now, topic, false, out);
        }
    }

    /// The route of a topic has just failed somebody: it is asked for again, now and then.
    pub(super) fn doubt_route(&mut self, now: Now, topic: u32, out: &mut Vec<Output>) {
        let known = self.routes.topic(topic);
        if !known.asking && now.at >= known.asked_at + AGAIN_MS {
            self.ask_route(now, topic, false, out);
        }
    }

    fn ask_route(&mut self, now: Now, topic: u32, refresh: bool, out: &mut Vec<Output>) {
        let known = self.routes.topic_mut(topic);
        known.asking = true;
        known.asked_at = now.at;
        let name = known.name.clone();
        let ask = RouteAsk {
            topic,
            refresh,
            template: None,
        };
        self.ask_for_route(now, ask, name, out);
    }

    /// The question for a route has ended.
    pub(super) fn route_answered(
        &mut self,
        now: Now,
        ask: RouteAsk,
        found: Result<Found, Error>,
        out: &mut Vec<Output>,
    ) {
        let topic = ask.topic;
        let error = match found {
            Ok(Found::Route(mut route)) => {
                if let Some(queue_nums) = ask.template {
                    route.cap(queue_nums);
                }
                self.route_ended(&ask);
                let change = self.routes.install(topic, route, ask.template.is_some());
                self.route_installed(now, topic, &change, out);
                return;
            }
            Ok(Found::Nothing) if ask.template.is_none() => {
                let known = self.routes.topic(topic);
                // One that was known is kept: the nameserver may just have started.
                if let (false, Some((template, nums))) = (known.known, known.template.clone()) {
                    let ask = RouteAsk {
                        template: Some(nums),
                        ..ask
                    };
                    self.ask_for_route(now, ask, template, out);
                    return;
                }
                Error::new(ErrorKind::TopicNotFound)
            }
            Ok(Found::Nothing) => Error::new(ErrorKind::TopicNotFound),
            Err(error) => error,
        };
        self.route_ended(&ask);
        let name = self.routes.topic(topic).name.clone();
        let error = error.of_topic(&name);
        tracing::debug!(topic = &*name, %error, "no route");
        self.sends_without_route(now, topic, &error, out);
        self.consumers_without_route(now, &name, &error, out);
    }

    fn route_ended(&mut self, ask: &RouteAsk) {
        self.routes.topic_mut(ask.topic).asking = false;
        if ask.refresh {
            self.refresh.open = self.refresh.open.saturating_sub(1);
        }
    }

    fn route_installed(&mut self, now: Now, topic: u32, change: &Change, out: &mut Vec<Output>) {
        for &broker in &change.gone {
            self.producers.forget_broker(broker);
        }
        if change.new_addresses {
            self.heartbeats.change();
        }
        let known = self.routes.topic(topic);
        if change.publish && known.announced {
            out.push(Output::PublishQueues {
                topic: known.name.clone(),
                queues: known.publish_list.clone(),
            });
        }
        self.sends_with_route(now, topic, out);
        self.consumers_with_route(now, topic, out);
    }

    /// Answers with the queues of a topic, or enters who waits for them.
    pub(super) fn publish_queues(
        &mut self,
        now: Now,
        ticket: io::Ticket,
        producer: io::ProducerId,
        topic: &Arc<str>,
        timeout_ms: u64,
        out: &mut Vec<Output>,
    ) {
        let id = match self.topic_for(producer, topic) {
            Ok(id) => id,
            Err(error) => return done(out, ticket, Err(error)),
        };
        let known = self.routes.topic_mut(id);
        known.announced = true;
        if known.known && !known.publish.is_empty() {
            let queues = known.publish_list.clone();
            return done(out, ticket, Ok(io::Answer::Queues(queues)));
        }
        self.producers.wait_for_queues(now, ticket, id, timeout_ms);
        self.want_route(now, id, out);
    }
}
