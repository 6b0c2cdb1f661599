//! Who is connected: the live producers and consumers of each group.
//!
//! A member of a group is a connection: a client process has one to each broker,
//! and may be a member of many groups with it. Membership ends with the
//! connection, by its own request, or in each group on its own after a silence,
//! so that a consumer that stopped is not kept alive by its neighbours.
//!
//! Source of the rules: `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::consumer_group::ConsumerGroup;
use super::limits::{
    CLIENT_ID_BYTES_MAX, EXPRESSION_BYTES_MAX, GROUPS_PER_CONNECTION_MAX, LIVE_GROUPS_MAX,
    MEMBERS_PER_GROUP_MAX, SUBSCRIPTIONS_PER_GROUP_MAX,
};
use super::view::Warning;
use crate::shard::ConnId;
use crate::wire::body::heartbeat::ConsumerData;

/// A client as one of its connections showed it.
#[derive(Clone, Debug)]
pub struct Client {
    /// The connection.
    pub conn: ConnId,
    /// Its other end.
    pub addr: SocketAddr,
    /// Name of the client process.
    pub client_id: Arc<str>,
    /// Its language, an index of [`crate::wire::header::LANGUAGES`].
    pub language: u8,
    /// Ordinal of its version.
    pub version: i32,
    /// Its last heartbeat in the group that it is found in, in ms since 1970.
    pub last_update_ms: u64,
}

/// Why a heartbeat is refused, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The client id is empty or longer than [`CLIENT_ID_BYTES_MAX`].
    ClientId(usize),
    /// The name of a group is empty or longer than any group's.
    GroupName(usize),
    /// [`LIVE_GROUPS_MAX`] is reached.
    TooManyGroups,
    /// [`GROUPS_PER_CONNECTION_MAX`] is reached.
    TooManyGroupsOfConnection,
    /// [`MEMBERS_PER_GROUP_MAX`] is reached.
    TooManyMembers(String),
    /// More subscriptions than [`SUBSCRIPTIONS_PER_GROUP_MAX`].
    TooManySubscriptions(usize),
    /// An expression longer than [`EXPRESSION_BYTES_MAX`].
    Expression(usize),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::ClientId(len) => {
                write!(f, "clientID has {len} bytes, not 1..={CLIENT_ID_BYTES_MAX}")
            }
            ClientError::GroupName(len) => {
                write!(
                    f,
                    "a group's name has {len} bytes, not 1..={GROUP_NAME_BYTES_MAX}"
                )
            }
            ClientError::TooManyGroups => {
                write!(
                    f,
                    "{LIVE_GROUPS_MAX} groups are live, the most there can be"
                )
            }
            ClientError::TooManyGroupsOfConnection => write!(
                f,
                "the connection is a member of {GROUPS_PER_CONNECTION_MAX} groups, the most it can be"
            ),
            ClientError::TooManyMembers(group) => write!(
                f,
                "group {group} has {MEMBERS_PER_GROUP_MAX} members, the most it can have"
            ),
            ClientError::TooManySubscriptions(len) => write!(
                f,
                "{len} subscriptions of one group are more than {SUBSCRIPTIONS_PER_GROUP_MAX}"
            ),
            ClientError::Expression(len) => write!(
                f,
                "an expression of {len} bytes is longer than {EXPRESSION_BYTES_MAX}"
            ),
        }
    }
}

impl std::error::Error for ClientError {}

/// Longest name of a live group in bytes; administrators may have made some that
/// are longer than what clients may create.
const GROUP_NAME_BYTES_MAX: usize = 255;

/// What a change of membership leads to.
#[derive(Debug, Default)]
pub struct Changes {
    /// Consumer groups whose members, or whose topics, are others than before.
    pub members: BTreeSet<String>,
    /// Consumer groups that want something else than before, came up or went away.
    pub views: BTreeSet<String>,
    /// (group, client id) that are gone for good: their locks are free.
    pub gone: Vec<(String, Arc<str>)>,
    /// Things to log.
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Default)]
struct Memberships {
    producer: BTreeSet<Arc<str>>,
    consumer: BTreeSet<Arc<str>>,
}

/// All live clients.
#[derive(Debug, Default)]
pub struct ClientTable {
    producers: BTreeMap<Arc<str>, BTreeMap<ConnId, Client>>,
    consumers: BTreeMap<Arc<str>, ConsumerGroup>,
    connections: HashMap<ConnId, Memberships>,
}

impl ClientTable {
    /// Checks what is said of a client before anything is made of it.
    ///
    /// # Errors
    /// [`ClientError::ClientId`].
    pub fn check_client_id(client_id: &str) -> Result<(), ClientError> {
        match client_id.len() {
            1..=CLIENT_ID_BYTES_MAX => Ok(()),
            len => Err(ClientError::ClientId(len)),
        }
    }

    /// Notes a heartbeat of a producer.
    ///
    /// # Errors
    /// A bound is reached; nothing changed.
    pub fn producer(&mut self, group: &str, client: &Client) -> Result<(), ClientError> {
        check_group_name(group)?;
        if let Some(members) = self.producers.get_mut(group) {
            if let Some(known) = members.get_mut(&client.conn) {
                known.last_update_ms = client.last_update_ms;
                return Ok(());
            }
            if members.len() >= MEMBERS_PER_GROUP_MAX {
                return Err(ClientError::TooManyMembers(group.to_owned()));
            }
        } else if self.producers.len() >= LIVE_GROUPS_MAX {
            return Err(ClientError::TooManyGroups);
        }
        let name: Arc<str> = group.into();
        let memberships = self.memberships(client.conn)?;
        memberships.producer.insert(Arc::clone(&name));
        let members = self.producers.entry(name).or_default();
        members.insert(client.conn, client.clone());
        Ok(())
    }

    /// Notes a heartbeat of a consumer. `subscriptions` is false where the heartbeat
    /// leaves them out, so that those known stay. Returns whether the client must
    /// send them again, for heartbeats of the second version.
    ///
    /// # Errors
    /// A bound is reached; nothing changed.
    pub fn consumer(
        &mut self,
        data: &ConsumerData,
        client: &Client,
        fingerprint: i32,
        subscriptions: bool,
        changes: &mut Changes,
    ) -> Result<bool, ClientError> {
        let name = data.group_name.as_str();
        check_group_name(name)?;
        check_subscriptions(data)?;
        match self.consumers.get(name) {
            Some(group) if group.has_member(client.conn) => {}
            Some(group) if group.member_count() >= MEMBERS_PER_GROUP_MAX => {
                return Err(ClientError::TooManyMembers(name.to_owned()));
            }
            None if self.consumers.len() >= LIVE_GROUPS_MAX => {
                return Err(ClientError::TooManyGroups);
            }
            _ => {
                let name: Arc<str> = name.into();
                self.memberships(client.conn)?.consumer.insert(name);
            }
        }
        let group = match self.consumers.get_mut(name) {
            Some(group) => group,
            None => {
                changes.views.insert(name.to_owned());
                self.consumers.entry(name.into()).or_default()
            }
        };
        let resend = group.fingerprint(fingerprint)
            || (!subscriptions && group.subscriptions().next().is_none());
        if group.describe(data) {
            changes.views.insert(name.to_owned());
        }
        let mut others = group.member(name, client, changes);
        if subscriptions {
            let update = group.subscribe(name, client.conn, &data.subscription_data_set, changes);
            others |= update.topics;
            if update.any {
                changes.views.insert(name.to_owned());
            }
        }
        if others {
            changes.members.insert(name.to_owned());
        }
        Ok(resend)
    }

    fn memberships(&mut self, conn: ConnId) -> Result<&mut Memberships, ClientError> {
        let memberships = self.connections.entry(conn).or_default();
        let held = memberships.producer.len() + memberships.consumer.len();
        if held >= GROUPS_PER_CONNECTION_MAX {
            return Err(ClientError::TooManyGroupsOfConnection);
        }
        Ok(memberships)
    }

    /// Ends the membership of a connection in a group of producers.
    pub fn leave_producer(&mut self, group: &str, conn: ConnId) {
        if let Some(members) = self.producers.get_mut(group) {
            members.remove(&conn);
            if members.is_empty() {
                self.producers.remove(group);
            }
        }
        if let Some(memberships) = self.connections.get_mut(&conn) {
            memberships.producer.remove(group);
            self.forget_idle(conn);
        }
    }

    /// Ends the membership of a connection in a group of consumers.
    pub fn leave_consumer(&mut self, group: &str, conn: ConnId, changes: &mut Changes) {
        if let Some(members) = self.consumers.get_mut(group) {
            if let Some(left) = members.leave(conn) {
                changes.members.insert(group.to_owned());
                if left.last_of_client {
                    changes.gone.push((group.to_owned(), left.client.client_id));
                }
            }
            if members.member_count() == 0 {
                self.consumers.remove(group);
                changes.views.insert(group.to_owned());
            }
        }
        if let Some(memberships) = self.connections.get_mut(&conn) {
            memberships.consumer.remove(group);
            self.forget_idle(conn);
        }
    }

    fn forget_idle(&mut self, conn: ConnId) {
        let held = self.connections.get(&conn);
        if held.is_some_and(|m| m.producer.is_empty() && m.consumer.is_empty()) {
            self.connections.remove(&conn);
        }
    }

    /// Ends all memberships of a connection that is closed.
    pub fn close(&mut self, conn: ConnId, changes: &mut Changes) {
        let Some(memberships) = self.connections.remove(&conn) else {
            return;
        };
        for group in memberships.producer {
            self.leave_producer(&group, conn);
        }
        for group in memberships.consumer {
            self.leave_consumer(&group, conn, changes);
        }
    }

    /// Ends memberships without a heartbeat for longer than `timeout_ms`.
    pub fn expire(&mut self, now_ms: u64, timeout_ms: u64, changes: &mut Changes) {
        let silent = |client: &Client| now_ms.saturating_sub(client.last_update_ms) > timeout_ms;
        let mut producers = Vec::new();
        for (group, members) in &self.producers {
            let gone = members.values().filter(|client| silent(client));
            producers.extend(gone.map(|client| (Arc::clone(group), client.conn)));
        }
        let mut consumers = Vec::new();
        for (group, members) in &self.consumers {
            let gone = members.members().filter(|client| silent(client));
            consumers.extend(gone.map(|client| (Arc::clone(group), client.conn)));
        }
        for (group, conn) in producers {
            self.leave_producer(&group, conn);
        }
        for (group, conn) in consumers {
            self.leave_consumer(&group, conn, changes);
        }
    }

    /// The live members of a consumer group; `None` when there are none.
    pub fn consumer_group(&self, group: &str) -> Option<&ConsumerGroup> {
        self.consumers.get(group)
    }

    /// The live members of a producer group.
    pub fn producer_group(&self, group: &str) -> Option<impl Iterator<Item = &Client>> {
        self.producers.get(group).map(BTreeMap::values)
    }

    /// All live producer groups by name.
    pub fn producer_groups(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &Client>)> {
        self.producers
            .iter()
            .map(|(group, members)| (&**group, members.values()))
    }

    /// The live consumer groups that want something of a topic, by name.
    pub fn groups_of_topic<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a str> {
        let wants = self.consumers.iter();
        wants
            .filter(move |(_, group)| group.subscription(topic).is_some())
            .map(|(name, _)| &**name)
    }
}

fn check_group_name(group: &str) -> Result<(), ClientError> {
    match group.len() {
        1..=GROUP_NAME_BYTES_MAX => Ok(()),
        len => Err(ClientError::GroupName(len)),
    }
}

fn check_subscriptions(data: &ConsumerData) -> Result<(), ClientError> {
    let subscriptions = &data.subscription_data_set;
    if subscriptions.len() > SUBSCRIPTIONS_PER_GROUP_MAX {
        return Err(ClientError::TooManySubscriptions(subscriptions.len()));
    }
    let longest = subscriptions
        .iter()
        .map(|s| s.sub_string.len() + s.topic.len())
        .max();
    match longest {
        Some(len) if len > EXPRESSION_BYTES_MAX => Err(ClientError::Expression(len)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
