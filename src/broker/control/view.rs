//! What other shards know of a group, and what must be done after something changed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::broker::peers::Peers;
use crate::shard::ConnId;
use crate::wire::body::heartbeat::{ConsumeType, MessageModel, SubscriptionData};
use crate::wire::body::subscription_group::SubscriptionGroupConfig;
use crate::wire::body::topic::TopicConfig;
use crate::wire::codes::request;
use crate::wire::command::Request;

/// Everything that a pull must know of its group. Never changed, only replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupView {
    /// Settings of the group.
    pub config: Arc<SubscriptionGroupConfig>,
    /// What the group may not read: bits by topic.
    pub forbidden: BTreeMap<String, i32>,
    /// What its live members want; `None` when there are none.
    pub live: Option<LiveGroup>,
}

/// What the live members of a group want.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveGroup {
    /// How they ask for messages.
    pub consume_type: ConsumeType,
    /// Who of them gets a message.
    pub message_model: MessageModel,
    /// What they want, by topic.
    pub subscriptions: HashMap<String, Arc<SubscriptionData>>,
}

/// A group is now as the view says.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupChange {
    /// Name of the group.
    pub group: String,
    /// `None`: there is no such group.
    pub view: Option<Arc<GroupView>>,
}

/// Something that an operator should hear of once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Two live members of a group want different things: each loses messages.
    SubscriptionsDiffer {
        /// The group.
        group: String,
        /// The member that sent a heartbeat, and the other one.
        clients: [Arc<str>; 2],
        /// The topic.
        topic: String,
        /// What each of them wants of it; `None`: nothing.
        wants: [Option<String>; 2],
    },
    /// Two live connections use one client id: each works on the same queues.
    SameClientId {
        /// The group.
        group: String,
        /// The client id.
        client: Arc<str>,
        /// The connection that sent a heartbeat.
        addr: SocketAddr,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::SubscriptionsDiffer {
                group,
                clients,
                topic,
                wants,
            } => {
                let want = |index: usize| wants[index].as_deref().unwrap_or("(nothing)");
                write!(
                    f,
                    "members of group {group} differ in what they want of topic {topic}, so that \
                     messages get lost: {} wants {:?}, {} wants {:?}",
                    clients[0],
                    want(0),
                    clients[1],
                    want(1)
                )
            }
            Warning::SameClientId {
                group,
                client,
                addr,
            } => write!(
                f,
                "more than one live connection of group {group} has the client id {client}, \
                 {addr} among them: they consume the same queues twice"
            ),
        }
    }
}

/// What must be done after a request changed control state. The state itself is
/// already as it should be.
#[must_use = "shards and clients do not hear of the change unless this is delivered"]
#[derive(Debug, Default)]
pub struct Effects {
    /// Groups that every shard must have its copy replaced of.
    pub groups: Vec<GroupChange>,
    /// Groups whose members changed, and those to tell.
    pub notify: Vec<(String, Vec<ConnId>)>,
    /// Topics that were made: shards and nameservers must be told.
    pub topics: Vec<Arc<TopicConfig>>,
    /// Things to log.
    pub warnings: Vec<Warning>,
}

impl Effects {
    /// Does it: shards first, so that a client that rebalances finds them ready,
    /// then clients, then nameservers, which are waited for.
    pub async fn deliver(self, peers: &Peers) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
        if !self.groups.is_empty() {
            peers.publish_groups(&self.groups);
        }
        for (group, members) in &self.notify {
            let notice = Request::new(request::NOTIFY_CONSUMER_IDS_CHANGED);
            let notice = notice.with("consumerGroup", group);
            for &member in members {
                peers.notify(member, notice.clone());
            }
        }
        if !self.topics.is_empty() {
            let topics: Vec<TopicConfig> = self.topics.iter().map(|t| (**t).clone()).collect();
            peers.publish_topics(&topics).await;
        }
    }
}
