//! What the brokers of one process tell each other (`routeMode=perShard`).
//!
//! A send to an unknown topic makes it where the send arrives. Clients send to the
//! brokers that a topic's route names, so a topic that exists on one shard would stay
//! on it: it is made on the others too, as each of them would have made it, before the
//! send is answered. Topics that an administrator makes are made where he says.

use std::rc::Rc;
use std::time::Duration;

use flume::{Receiver, Sender};

use super::BrokerShard;
use super::message::WantedTopic;
use crate::shard::{sleep, spawn};

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
        // Ends when every copy of its sender is dropped: nothing is sent on it.
        let (made, all_made) = flume::bounded::<()>(0);
        for other in &self.others {
            let _ = other.send_async((wanted.clone(), made.clone())).await;
        }
        drop(made);
        let wait = async {
            let _ = all_made.recv_async().await;
        };
        futures_lite::future::or(wait, sleep(OTHERS_TIMEOUT)).await;
    }
}

impl BrokerShard {
    /// Makes the topics that other brokers of the process have made, as long as the
    /// process runs.
    pub(super) async fn follow_siblings(self: Rc<Self>) {
        let Some(control) = &self.control else {
            return;
        };
        while let Ok((wanted, made)) = control.siblings.inbox.recv_async().await {
            let me = self.clone();
            spawn(async move {
                if let Some(topic) = me.make_topic(&wanted) {
                    me.answer_topic(topic).await;
                }
                drop(made);
            });
        }
    }
}
