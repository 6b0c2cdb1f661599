//! Which brokers are alive, and what happens when one is not.

use std::collections::{BTreeSet, HashMap};

use crate::wire::body::topic::DataVersion;

use super::Nameserver;
use super::routes::MASTER_ID;

/// Silence after which a broker is removed, in milliseconds, unless it names
/// another time itself.
pub const EXPIRY_MS_DEFAULT: u64 = 120_000;

/// Most registered broker addresses. At the bound a new one is refused with code 1.
pub const BROKERS_MAX: usize = 4096;

/// A broker process: its broker's name and its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub broker: String,
    pub addr: String,
}

impl Key {
    pub fn new(broker: &str, addr: &str) -> Key {
        Key {
            broker: broker.to_owned(),
            addr: addr.to_owned(),
        }
    }
}

/// What is known of a registered broker process.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub id: i64,
    /// The newest connection it has spoken on, and its age: smaller is older.
    pub conn: u64,
    pub conn_age: u64,
    /// Connection of the last registration.
    pub registered_on: u64,
    pub last_ms: u64,
    pub timeout_ms: u64,
    pub version: DataVersion,
    pub ha_addr: String,
}

#[derive(Default)]
pub(super) struct Liveness {
    brokers: HashMap<Key, Live>,
    /// Open connections on which a broker has spoken, in the order of its first
    /// word. Bounded by the number of open connections.
    connections: HashMap<u64, u64>,
    next_age: u64,
}

impl Liveness {
    pub fn len(&self) -> usize {
        self.brokers.len()
    }

    /// The age of a connection on which a broker speaks.
    pub fn age(&mut self, conn: u64) -> u64 {
        *self.connections.entry(conn).or_insert_with(|| {
            self.next_age += 1;
            self.next_age
        })
    }

    pub fn get(&self, key: &Key) -> Option<&Live> {
        self.brokers.get(key)
    }

    pub fn put(&mut self, key: Key, live: Live) {
        self.brokers.insert(key, live);
    }

    pub fn remove(&mut self, key: &Key) -> Option<Live> {
        self.brokers.remove(key)
    }

    /// Notes a sign of life of a broker that is known. One that has connected
    /// again and finds its table up to date does not register once more.
    pub fn touch(&mut self, key: &Key, conn: u64, now_ms: u64) {
        let age = self.age(conn);
        if let Some(live) = self.brokers.get_mut(key) {
            live.last_ms = now_ms;
            if age > live.conn_age {
                live.conn_age = age;
                live.conn = conn;
            }
        }
    }

    fn find(&self, which: impl Fn(&Live) -> bool) -> Vec<Key> {
        let found = self.brokers.iter().filter(|(_, live)| which(live));
        found.map(|(key, _)| key.clone()).collect()
    }
}

impl Nameserver {
    /// Notes that a connection is closed: the brokers that have spoken on
    /// no newer one are removed.
    pub fn connection_closed(&mut self, conn: u64, _now_ms: u64) {
        if self.liveness.connections.remove(&conn).is_none() {
            return;
        }
        for key in self.liveness.find(|live| live.conn == conn) {
            self.remove_broker(&key, "its connection was closed");
        }
    }

    /// Removes the brokers that have been silent for too long and returns their
    /// connections, which the caller closes. To be called every 5 s.
    pub fn expire(&mut self, now_ms: u64) -> Vec<u64> {
        let silent = |live: &Live| live.last_ms.saturating_add(live.timeout_ms) < now_ms;
        let mut connections = BTreeSet::new();
        for key in self.liveness.find(silent) {
            if let Some(live) = self.liveness.get(&key) {
                connections.insert(live.conn);
            }
            self.remove_broker(&key, "it was silent for too long");
        }
        connections.into_iter().collect()
    }

    /// Says that a master takes the place of one that is alive: most likely two brokers
    /// have one name, and each registration takes the routes of the other.
    pub(super) fn warn_of_another_master(&self, key: &Key) {
        let Some(before) = self.routes.address(&key.broker, MASTER_ID) else {
            return;
        };
        if before != key.addr && self.liveness.get(&Key::new(&key.broker, before)).is_some() {
            tracing::warn!(
                broker = key.broker,
                addr = key.addr,
                before,
                "another address registers as the master of a broker whose master is alive: \
                 do two brokers have one name?"
            );
        }
    }

    /// Removes a broker process, and what it had if it was the last of its name.
    pub(super) fn remove_broker(&mut self, key: &Key, why: &str) {
        let Some(live) = self.liveness.remove(key) else {
            return;
        };
        let Key { broker, addr } = key;
        let shown = self.routes.remove_member(broker, live.id, addr);
        tracing::info!(broker, addr, id = live.id, shown, why, "broker removed");
    }
}
