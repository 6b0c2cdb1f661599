//! Queues that ordered consumers hold: at most one client of a group works on a queue.
//!
//! A lock is given for a time and renewed by its holder. It ends when the holder
//! gives it back, is gone, or is silent. Source of the rules: `RebalanceLockManager`.

use std::collections::HashMap;
use std::sync::Arc;

use super::limits::{LOCKING_GROUPS_MAX, LOCKS_PER_GROUP_MAX};
use crate::wire::body::json::MessageQueue;

/// How long a lock lasts without being renewed unless set, in ms. Clients renew every 20 s and
/// stop working after 30 s without (`rocketmq.broker.rebalance.lockMaxLiveTime`).
pub const LOCK_MS: u64 = 60_000;

#[derive(Debug)]
struct Lock {
    client: Arc<str>,
    renewed_ms: u64,
}

impl Lock {
    fn is_live(&self, now_ms: u64, live_ms: u64) -> bool {
        now_ms.saturating_sub(self.renewed_ms) <= live_ms
    }
}

/// All locks.
#[derive(Debug)]
pub struct LockTable {
    /// How long a lock lasts (`lockMaxLiveTime`), in ms.
    pub live_ms: u64,
    groups: HashMap<String, HashMap<MessageQueue, Lock>>,
}

impl Default for LockTable {
    fn default() -> LockTable {
        LockTable {
            live_ms: LOCK_MS,
            groups: HashMap::new(),
        }
    }
}

impl LockTable {
    /// Locks queues for a client, and returns those that it holds now.
    pub fn lock(
        &mut self,
        group: &str,
        client: &str,
        queues: Vec<MessageQueue>,
        now_ms: u64,
    ) -> Vec<MessageQueue> {
        if queues.is_empty() {
            return queues;
        }
        if !self.groups.contains_key(group) {
            if self.groups.len() >= LOCKING_GROUPS_MAX {
                return Vec::new();
            }
            self.groups.insert(group.to_owned(), HashMap::new());
        }
        let live_ms = self.live_ms;
        let Some(locks) = self.groups.get_mut(group) else {
            return Vec::new();
        };
        let client: Arc<str> = client.into();
        let mut held = Vec::with_capacity(queues.len());
        for queue in queues {
            let room = locks.len() < LOCKS_PER_GROUP_MAX;
            let granted = match locks.get(&queue) {
                None => room,
                Some(lock) => lock.client == client || !lock.is_live(now_ms, live_ms),
            };
            if granted {
                let lock = Lock {
                    client: Arc::clone(&client),
                    renewed_ms: now_ms,
                };
                locks.insert(queue.clone(), lock);
                held.push(queue);
            }
        }
        held
    }

    /// Gives back those of the queues that the client holds.
    pub fn unlock(&mut self, group: &str, client: &str, queues: &[MessageQueue]) {
        let Some(locks) = self.groups.get_mut(group) else {
            return;
        };
        for queue in queues {
            if locks.get(queue).is_some_and(|lock| &*lock.client == client) {
                locks.remove(queue);
            }
        }
        self.forget_empty(group);
    }

    /// Gives back all that a client holds which is gone: the next owner of its queues
    /// need not wait for the locks to end.
    pub fn release(&mut self, group: &str, client: &str) {
        if let Some(locks) = self.groups.get_mut(group) {
            locks.retain(|_, lock| &*lock.client != client);
            self.forget_empty(group);
        }
    }

    /// Forgets locks that have ended. For the memory alone: they count for nothing.
    pub fn expire(&mut self, now_ms: u64) {
        let live_ms = self.live_ms;
        self.groups.retain(|_, locks| {
            locks.retain(|_, lock| lock.is_live(now_ms, live_ms));
            !locks.is_empty()
        });
    }

    /// Whether the group consumes in order: a client of it holds a queue
    /// (`isLockAllExpired`, the other way round).
    pub fn is_orderly(&self, group: &str, now_ms: u64) -> bool {
        let (locks, live_ms) = (self.groups.get(group), self.live_ms);
        locks.is_some_and(|locks| locks.values().any(|lock| lock.is_live(now_ms, live_ms)))
    }

    fn forget_empty(&mut self, group: &str) {
        if self.groups.get(group).is_some_and(HashMap::is_empty) {
            self.groups.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn queues(ids: impl IntoIterator<Item = i32>) -> Vec<MessageQueue> {
        let queue = |queue_id| MessageQueue {
            broker_name: "b".into(),
            queue_id,
            topic: "T".into(),
        };
        ids.into_iter().map(queue).collect()
    }

    #[test]
    fn a_queue_has_one_holder() {
        let mut locks = LockTable::default();
        assert_eq!(locks.lock("g", "a", queues(0..4), NOW), queues(0..4));
        assert_eq!(locks.lock("g", "b", queues(2..6), NOW), queues(4..6));
        assert_eq!(locks.lock("h", "b", queues(0..1), NOW), queues(0..1));
        locks.unlock("g", "b", &queues(0..4));
        assert!(locks.lock("g", "b", queues(0..4), NOW).is_empty());
        locks.unlock("g", "a", &queues(0..4));
        assert_eq!(locks.lock("g", "b", queues(0..4), NOW), queues(0..4));
    }

    #[test]
    fn renewal_keeps_a_lock_and_silence_ends_it() {
        let mut locks = LockTable::default();
        let _ = locks.lock("g", "a", queues(0..1), NOW);
        for minute in 1..=10 {
            let now = NOW + minute * LOCK_MS;
            assert!(locks.lock("g", "b", queues(0..1), now).is_empty());
            assert_eq!(locks.lock("g", "a", queues(0..1), now).len(), 1);
        }
        let now = NOW + 11 * LOCK_MS + 1;
        assert!(!locks.is_orderly("g", now));
        assert_eq!(locks.lock("g", "b", queues(0..1), now).len(), 1);
        assert!(locks.is_orderly("g", now));
    }

    #[test]
    fn what_a_client_held_is_free_when_it_is_gone() {
        let mut locks = LockTable::default();
        let _ = locks.lock("g", "a", queues(0..4), NOW);
        let _ = locks.lock("g", "b", queues(4..8), NOW);
        locks.release("g", "a");
        assert_eq!(locks.lock("g", "b", queues(0..8), NOW), queues(0..8));
        locks.expire(NOW + LOCK_MS + 1);
        assert!(locks.groups.is_empty());
    }

    #[test]
    fn a_group_locks_only_so_many_queues() {
        let mut locks = LockTable::default();
        let most = LOCKS_PER_GROUP_MAX as i32;
        let held = locks.lock("g", "a", queues(0..most + 5), NOW);
        assert_eq!(held.len(), LOCKS_PER_GROUP_MAX);
    }
}
