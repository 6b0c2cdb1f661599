//! What the brokers of one process tell each other (`routeMode=perShard`).
//!
//! A send to an unknown topic makes it where the send arrives. Clients send to the
//! brokers that a topic's route names, so a topic that exists on one shard would stay
//! on it: it is made on the others too, as each of them would have made it, before the
//! send is answered, where they answer within [`OTHERS_TIMEOUT`]. Topics that an
//! administrator makes are made where he says.

use std::rc::Rc;
use std::time::Duration;

use flume::{Receiver, Sender, TrySendError};

use super::BrokerShard;
use super::message::WantedTopic;
use crate::shard::{receive, send, sleep, spawn};

/// Wanted topics that wait for one broker. At the bound those who ask wait.
const WANTED_MAX: usize = 1024;

/// Longest wait for the others. One that is slower makes the topic all the same.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(3);

/// A topic that another broker of the process has made; dropped when it is made here.
type Wanted = (WantedTopic, Sender<()>);

/// One broker's ends of the channels to the others.
pub(super) struct Siblings {
    others: Vec<Sender<Wanted>>,
    inbox: Receiver<Wanted>,
}

/// The ends for each of `count` brokers.
pub(super) fn siblings(count: usize) -> Vec<Siblings> {
    let (senders, inboxes): (Vec<_>, Vec<_>) =
        (0..count).map(|_| flume::bounded(WANTED_MAX)).unzip();
    let ends = inboxes.into_iter().enumerate().map(|(own, inbox)| {
        let others = senders.iter().enumerate();
        Siblings {
            others: others
                .filter(|&(other, _)| other != own)
                .map(|(_, sender)| sender.clone())
                .collect(),
            inbox,
        }
    });
    ends.collect()
}

impl Siblings {
    /// Has the others make a topic. Returns when they have, or after
    /// [`OTHERS_TIMEOUT`].
    pub async fn make(&self, wanted: &WantedTopic) {
        let late = sleep(OTHERS_TIMEOUT);
        futures_lite::future::or(self.ask_others(wanted), late).await;
    }

    async fn ask_others(&self, wanted: &WantedTopic) {
        // Ends when every copy of its sender is dropped: nothing is sent on it.
        let (made, all_made) = flume::bounded::<()>(0);
        // First those with room: one that is behind does not keep the others from it.
        let mut behind = Vec::new();
        for other in &self.others {
            if let Err(TrySendError::Full(wanted)) = other.try_send((wanted.clone(), made.clone()))
            {
                behind.push((other, wanted));
            }
        }
        drop(made);
        for (other, wanted) in behind {
            let _ = send(other, wanted).await;
        }
        let _ = receive(&all_made).await;
    }
}

impl BrokerShard {
    /// Makes the topics that other brokers of the process have made, as long as the
    /// process runs.
    pub(super) async fn follow_siblings(self: Rc<Self>) {
        let Some(control) = &self.control else {
            return;
        };
        while let Ok((wanted, made)) = receive(&control.siblings.inbox).await {
            let me = self.clone();
            spawn("a topic for another broker", async move {
                if let Some(topic) = me.make_topic(&wanted) {
                    me.answer_topic(topic).await;
                }
                drop(made);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{allowed_cpus, spawn_executor};
    use std::time::Instant;

    #[test]
    fn one_that_takes_nothing_neither_holds_up_the_asker_nor_the_others() {
        let mut ends = siblings(3);
        let wanted = WantedTopic {
            topic: "T".to_owned(),
            template: "TBW102".to_owned(),
            queues: 4,
            sys_flag: 0,
        };
        let (made, _) = flume::bounded(0);
        for _ in 0..WANTED_MAX {
            ends[0].others[0]
                .send((wanted.clone(), made.clone()))
                .unwrap();
        }
        let third = ends.pop().unwrap();
        let asker = ends.swap_remove(0);
        let (told, hears) = flume::bounded(1);
        let cpu = allowed_cpus().unwrap()[0];
        spawn_executor("asks-others", cpu, move || async move {
            let began = Instant::now();
            asker.make(&wanted).await;
            let _ = told.send(began.elapsed());
        })
        .unwrap();
        let limit = OTHERS_TIMEOUT / 2;
        third
            .inbox
            .recv_timeout(limit)
            .expect("the third is asked at once");
        let waited = hears.recv_timeout(OTHERS_TIMEOUT * 3).expect("an end");
        assert!(waited >= OTHERS_TIMEOUT, "{waited:?}");
    }
}
