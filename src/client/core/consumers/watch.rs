//! Queues of topics that come and go, for whoever wants to know
//! (`DefaultLitePullConsumer.registerTopicMessageQueueChangeListener`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::core::Core;
use crate::client::core::io::{ConsumerId, Now, Output};
use crate::client::hooks::{Hooks, QueueHook};
use crate::client::message::MessageQueue;
use crate::client::settings::PullConsumerSettings;

/// Who is told of the queues of one consumer's topics.
#[derive(Debug)]
pub(super) struct Watch {
    hooks: Hooks<dyn QueueHook>,
    every_ms: u64,
    /// When nameservers are asked next, ms.
    pub at: u64,
    /// By topic, what is known.
    known: BTreeMap<Arc<str>, Arc<[MessageQueue]>>,
}

impl Watch {
    /// What a route says of a topic. Of the first one nobody is told: nothing has changed.
    pub fn routed(&mut self, topic: &Arc<str>, queues: &Arc<[MessageQueue]>) {
        let before = self.known.insert(topic.clone(), queues.clone());
        if before.is_some_and(|before| before != *queues) {
            for hook in self.hooks.iter() {
                hook.queues_changed(topic, queues);
            }
        }
    }
}

impl Core {
    /// Begins to watch the topics of a pull consumer, where somebody wants to know.
    pub(super) fn watch_queues(
        &mut self,
        now: Now,
        id: ConsumerId,
        settings: &PullConsumerSettings,
    ) {
        if settings.queue_hooks.is_empty() {
            return;
        }
        if let Some(member) = self.consumers.list.get_mut(&id) {
            let every_ms = settings.topic_metadata_check_interval_ms;
            member.watch = Some(Watch {
                hooks: settings.queue_hooks.clone(),
                every_ms,
                at: now.at + every_ms,
                known: BTreeMap::new(),
            });
        }
    }

    /// Asks for the routes of topics that are watched.
    pub(super) fn watches_due(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut topics = Vec::new();
        for member in self.consumers.list.values_mut() {
            let Some(watch) = member.watch.as_mut().filter(|watch| watch.at <= now.at) else {
                continue;
            };
            watch.at = now.at + watch.every_ms;
            topics.extend(member.consumer.topics().cloned());
            let wanted = |topic: &Arc<str>| member.consumer.topics().any(|own| own == topic);
            watch.known.retain(|topic, _| wanted(topic));
        }
        topics.sort();
        topics.dedup();
        for topic in topics {
            self.want_route_of(now, &topic, out);
        }
    }
}
