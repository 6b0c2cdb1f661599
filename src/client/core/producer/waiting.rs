//! Sends, and others, that wait for a route.

use super::{Producers, QueueWait, SendId};
use crate::client::core::io::{Answer, Now, Output};
use crate::client::core::{Core, done};
use crate::client::error::{Error, ErrorKind};

impl Core {
    /// Sends that waited for a route can go on.
    pub(in crate::client::core) fn sends_with_route(
        &mut self,
        now: Now,
        topic: u32,
        out: &mut Vec<Output>,
    ) {
        let known = self.routes.topic(topic);
        let queues = known.publish_list.clone();
        for wait in self.producers.take_queue_waits(|wait| wait.topic == topic) {
            let result = if queues.is_empty() {
                let what = "the topic has no queue that can be written".to_owned();
                Err(Error::new(ErrorKind::NoQueue { what }))
            } else {
                Ok(Answer::Queues(queues.clone()))
            };
            done(out, wait.ticket, result);
        }
        for id in self.producers.waiting_for(topic) {
            self.producers.unwait(id);
            self.try_send(now, id, out);
        }
    }

    /// There is no route: whoever waits for it learns why.
    pub(in crate::client::core) fn sends_without_route(
        &mut self,
        now: Now,
        topic: u32,
        error: &Error,
        out: &mut Vec<Output>,
    ) {
        for wait in self.producers.take_queue_waits(|wait| wait.topic == topic) {
            let elapsed = now.at.saturating_sub(wait.began);
            done(out, wait.ticket, Err(error.clone().after(elapsed, 0)));
        }
        for id in self.producers.waiting_for(topic) {
            self.end_send(now, id, Err(error.clone()), out);
        }
    }

    /// The client has stopped: nobody waits any longer.
    pub(in crate::client::core) fn end_queue_waits(&mut self, out: &mut Vec<Output>) {
        for wait in self.producers.take_queue_waits(|_| true) {
            done(out, wait.ticket, Err(ErrorKind::NotRunning.into()));
        }
    }

    /// Ends what has waited for a route until its deadline.
    pub(in crate::client::core) fn pass_waiting_sends(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some(&(deadline, id)) = self.producers.waiting.first() {
            if deadline > now.at {
                break;
            }
            let limit_ms = self.producers.get(id).map_or(0, |s| s.what.timeout_ms);
            self.end_send(now, id, Err(ErrorKind::Timeout { limit_ms }.into()), out);
            self.producers.waiting.remove(&(deadline, id));
        }
        if self.producers.queue_waits.is_empty() {
            return;
        }
        for wait in self
            .producers
            .take_queue_waits(|wait| wait.deadline <= now.at)
        {
            let limit_ms = wait.deadline.saturating_sub(wait.began);
            let error = Error::new(ErrorKind::Timeout { limit_ms });
            let name = self.routes.topic(wait.topic).name.clone();
            done(
                out,
                wait.ticket,
                Err(error.of_topic(&name).after(limit_ms, 0)),
            );
        }
    }
}

impl Producers {
    /// Enters a send among those that wait for a route.
    pub(super) fn wait(&mut self, id: SendId) {
        if let Some(send) = self.get(id) {
            let deadline = send.deadline;
            self.waiting.insert((deadline, id));
        }
    }

    pub(super) fn unwait(&mut self, id: SendId) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(send) = self.get(id) {
            let deadline = send.deadline;
            self.waiting.remove(&(deadline, id));
        }
    }

    /// Sends that wait for the route of a topic, in the order of their deadlines.
    fn waiting_for(&self, topic: u32) -> Vec<SendId> {
        let of_topic = |id: &SendId| {
            let send = self.sends[id.slot as usize].send.as_ref();
            send.is_some_and(|send| {
                let producer = self.list[send.producer as usize].as_ref();
                producer.is_some_and(|p| p.topics[send.topic as usize].topic == topic)
            })
        };
        let ids = self.waiting.iter().map(|&(_, id)| id);
        ids.filter(of_topic).collect()
    }

    fn take_queue_waits(&mut self, mut which: impl FnMut(&QueueWait) -> bool) -> Vec<QueueWait> {
        let all = std::mem::take(&mut self.queue_waits);
        let (taken, left) = all.into_iter().partition(|wait| which(wait));
        self.queue_waits = left;
        taken
    }
}
