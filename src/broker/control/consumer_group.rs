//! The live members of one consumer group, and what they want.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::clients::{Changes, Client};
use super::view::{LiveGroup, Warning};
use crate::shard::ConnId;
use crate::wire::body::heartbeat::{
    ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel, SubscriptionData,
};

#[derive(Debug)]
struct Member {
    client: Client,
    /// Time of its first heartbeat, in ms since 1970.
    joined_ms: u64,
    /// What this member asked for last, by topic. Only for telling that members
    /// differ; what counts is what the group has.
    wants: Vec<Arc<SubscriptionData>>,
}

/// A member that is gone.
#[derive(Debug)]
pub struct Left {
    /// Who it was.
    pub client: Client,
    /// Whether no other connection of the group has its client id.
    pub last_of_client: bool,
}

/// What a heartbeat changed in what the group wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubscriptionUpdate {
    /// Topics came or went.
    pub topics: bool,
    /// Anything changed.
    pub any: bool,
}

/// One live consumer group. Its settings and subscriptions are those of the last
/// heartbeat: all members are expected to say the same.
#[derive(Debug, Default)]
pub struct ConsumerGroup {
    consume_type: ConsumeType,
    message_model: MessageModel,
    from_where: ConsumeFromWhere,
    members: BTreeMap<ConnId, Member>,
    /// Client ids with the number of connections that have each.
    ids: BTreeMap<Arc<str>, u32>,
    subscriptions: BTreeMap<String, Arc<SubscriptionData>>,
    fingerprint: Option<i32>,
    warned_of_difference: bool,
    warned_of_same_id: bool,
}

impl ConsumerGroup {
    /// How the group asks for messages.
    pub fn consume_type(&self) -> ConsumeType {
        self.consume_type
    }

    /// Who of the group gets a message.
    pub fn message_model(&self) -> MessageModel {
        self.message_model
    }

    /// Where the group begins without an offset.
    pub fn from_where(&self) -> ConsumeFromWhere {
        self.from_where
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = &Client> {
        self.members.values().map(|member| &member.client)
    }

    /// Number of members.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Whether a connection is a member.
    pub fn has_member(&self, conn: ConnId) -> bool {
        self.members.contains_key(&conn)
    }

    /// The member with this client id that was heard of last.
    pub fn member_by_id(&self, client_id: &str) -> Option<&Client> {
        let same = self
            .members()
            .filter(|client| &*client.client_id == client_id);
        same.max_by_key(|client| client.last_update_ms)
    }

    /// The client ids, sorted. Each is there once however many connections have
    /// it: clients share out queues by their place in this list.
    pub fn client_ids(&self) -> impl Iterator<Item = &str> {
        self.ids.keys().map(|id| &**id)
    }

    /// What the group wants, by topic.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Arc<SubscriptionData>> {
        self.subscriptions.values()
    }

    /// What the group wants of a topic.
    pub fn subscription(&self, topic: &str) -> Option<&Arc<SubscriptionData>> {
        self.subscriptions.get(topic)
    }

    /// The group as other shards must know it.
    pub fn live(&self) -> LiveGroup {
        let subscriptions = self.subscriptions.iter();
        LiveGroup {
            consume_type: self.consume_type,
            message_model: self.message_model,
            subscriptions: subscriptions
                .map(|(topic, data)| (topic.clone(), Arc::clone(data)))
                .collect::<HashMap<_, _>>(),
        }
    }

    /// Takes over how a member consumes, and whether that is new.
    pub(super) fn describe(&mut self, data: &ConsumerData) -> bool {
        let before = (self.consume_type, self.message_model);
        self.consume_type = data.consume_type;
        self.message_model = data.message_model;
        self.from_where = data.consume_from_where;
        before != (self.consume_type, self.message_model)
    }

    /// Takes over the digest of a member's subscriptions, and whether it differs
    /// from the one before.
    pub(super) fn fingerprint(&mut self, fingerprint: i32) -> bool {
        let before = self.fingerprint.replace(fingerprint);
        before.is_some_and(|before| before != fingerprint)
    }

    /// Adds or refreshes a member, and whether it is new.
    pub(super) fn member(&mut self, group: &str, client: &Client, changes: &mut Changes) -> bool {
        if let Some(known) = self.members.get_mut(&client.conn) {
            let before = std::mem::replace(&mut known.client, client.clone());
            if before.client_id != client.client_id {
                *self.ids.entry(Arc::clone(&client.client_id)).or_default() += 1;
                if self.drop_id(&before.client_id) {
                    changes.gone.push((group.to_owned(), before.client_id));
                }
                return true;
            }
            // Only now is it sure that the older connection lives: a client that
            // reconnects also has two for a while.
            let count = self.ids.get(&client.client_id).copied().unwrap_or_default();
            if count > 1 && !self.warned_of_same_id && !self.is_newest(client) {
                self.warned_of_same_id = true;
                changes.warnings.push(Warning::SameClientId {
                    group: group.to_owned(),
                    client: Arc::clone(&client.client_id),
                    addr: client.addr,
                });
            }
            return false;
        }
        *self.ids.entry(Arc::clone(&client.client_id)).or_default() += 1;
        let member = Member {
            client: client.clone(),
            joined_ms: client.last_update_ms,
            wants: Vec::new(),
        };
        self.members.insert(client.conn, member);
        true
    }

    fn is_newest(&self, client: &Client) -> bool {
        let same = self
            .members
            .values()
            .filter(|m| m.client.client_id == client.client_id);
        same.max_by_key(|member| member.joined_ms)
            .is_none_or(|m| m.client.conn == client.conn)
    }

    fn drop_id(&mut self, client_id: &str) -> bool {
        let Some(count) = self.ids.get_mut(client_id) else {
            return false;
        };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.ids.remove(client_id);
        }
        last
    }

    /// Removes a member.
    pub(super) fn leave(&mut self, conn: ConnId) -> Option<Left> {
        let client = self.members.remove(&conn)?.client;
        let last_of_client = self.drop_id(&client.client_id);
        Some(Left {
            client,
            last_of_client,
        })
    }

    /// Takes over what a member wants: of each topic the newest, and no topic that
    /// it does not name (`ConsumerGroupInfo.updateSubscription`).
    pub(super) fn subscribe(
        &mut self,
        group: &str,
        conn: ConnId,
        wanted: &[SubscriptionData],
        changes: &mut Changes,
    ) -> SubscriptionUpdate {
        let mut update = SubscriptionUpdate::default();
        for data in wanted {
            match self.subscriptions.get(&data.topic) {
                None => update.topics = true,
                Some(known) if data.sub_version > known.sub_version => {}
                Some(_) => continue,
            }
            update.any = true;
            self.subscriptions
                .insert(data.topic.clone(), Arc::new(data.clone()));
        }
        let named: BTreeSet<&str> = wanted.iter().map(|data| data.topic.as_str()).collect();
        let before = self.subscriptions.len();
        self.subscriptions
            .retain(|topic, _| named.contains(topic.as_str()));
        update.topics |= self.subscriptions.len() != before;
        update.any |= update.topics;
        self.note_wants(group, conn, wanted, changes);
        update
    }

    /// Warns once while members want different things.
    fn note_wants(
        &mut self,
        group: &str,
        conn: ConnId,
        wanted: &[SubscriptionData],
        changes: &mut Changes,
    ) {
        let Some(member) = self.members.get_mut(&conn) else {
            return;
        };
        if wants_same(&member.wants, wanted) {
            return;
        }
        member.wants = wanted.iter().map(|data| Arc::new(data.clone())).collect();
        member.wants.sort_by(|a, b| a.topic.cmp(&b.topic));
        let client = Arc::clone(&member.client.client_id);
        let wants = &self.members[&conn].wants;
        let others = self
            .members
            .values()
            .filter(|other| other.client.conn != conn);
        let found = others
            .filter(|other| !other.wants.is_empty())
            .find_map(|other| Some((other, difference(wants, &other.wants)?)));
        let Some((other, (topic, wants))) = found else {
            self.warned_of_difference = false;
            return;
        };
        if !self.warned_of_difference {
            changes.warnings.push(Warning::SubscriptionsDiffer {
                group: group.to_owned(),
                clients: [client, Arc::clone(&other.client.client_id)],
                topic,
                wants,
            });
            self.warned_of_difference = true;
        }
    }
}

/// Whether a heartbeat repeats what a member wants. Members name topics in any order.
fn wants_same(known: &[Arc<SubscriptionData>], wanted: &[SubscriptionData]) -> bool {
    known.len() == wanted.len()
        && wanted.iter().all(|data| {
            let place = known.binary_search_by(|k| k.topic.as_str().cmp(&data.topic));
            place.is_ok_and(|place| known[place].same_filter(data))
        })
}

/// The first topic of which two sorted lists want different things.
fn difference(
    one: &[Arc<SubscriptionData>],
    two: &[Arc<SubscriptionData>],
) -> Option<(String, [Option<String>; 2])> {
    let find = |list: &[Arc<SubscriptionData>], topic: &str| {
        let place = list.binary_search_by(|data| data.topic.as_str().cmp(topic));
        place.ok().map(|place| Arc::clone(&list[place]))
    };
    one.iter().chain(two).find_map(|data| {
        let (a, b) = (find(one, &data.topic), find(two, &data.topic));
        match (&a, &b) {
            (Some(a), Some(b)) if a.same_filter(b) => None,
            _ => {
                let text = |data: Option<Arc<SubscriptionData>>| data.map(|d| d.sub_string.clone());
                Some((data.topic.clone(), [text(a), text(b)]))
            }
        }
    })
}
