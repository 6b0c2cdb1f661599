//! How large the tables of the control shard may grow, and what happens then.

/// Most topics. At the bound no topic is created: an administrator gets code 1,
/// a send code 17; those that exist go on.
pub const TOPICS_MAX: usize = 200_000;

/// Most queues of one topic, for reading and for writing. A request for more is
/// refused with code 29.
pub const QUEUES_PER_TOPIC_MAX: i32 = 65_536;

/// Most subscription groups. At the bound none is created: an administrator gets
/// code 1, a client is treated as where `autoCreateSubscriptionGroup` is off.
pub const GROUPS_MAX: usize = 200_000;

/// Most live producer groups, and as many live consumer groups. At the bound a
/// heartbeat that names another one is answered with code 1.
pub const LIVE_GROUPS_MAX: usize = GROUPS_MAX;

/// Most members of one live group. At the bound the heartbeat of another member
/// is answered with code 1, and it takes no part in the group.
pub const MEMBERS_PER_GROUP_MAX: usize = 10_000;

/// Most groups that one connection may be a member of, as producer and as
/// consumer. A heartbeat that names more is answered with code 1.
pub const GROUPS_PER_CONNECTION_MAX: usize = 4_096;

/// Most topics that one heartbeat may subscribe a group to. A longer list is
/// answered with code 1 and changes nothing.
pub const SUBSCRIPTIONS_PER_GROUP_MAX: usize = 4_096;

/// Longest client id in bytes. A longer one is answered with code 1.
pub const CLIENT_ID_BYTES_MAX: usize = 1_024;

/// Longest expression of a subscription in bytes. A longer one is answered with code 1.
pub const EXPRESSION_BYTES_MAX: usize = 64 * 1_024;

/// Most queues that one group may have locked. At the bound no further lock is
/// granted, which clients treat as a lock held by another.
pub const LOCKS_PER_GROUP_MAX: usize = 65_536;

/// Most groups that hold locks; see [`LOCKS_PER_GROUP_MAX`].
pub const LOCKING_GROUPS_MAX: usize = GROUPS_MAX;

/// Most offsets, of all groups, that one shard keeps. At the bound offsets of
/// further queues are not kept; those that are known go on.
pub const OFFSETS_PER_SHARD_MAX: usize = 4_000_000;

/// Most entries that one QUERY_CONSUME_QUEUE returns.
pub const QUEUE_ENTRIES_MAX: usize = 10_000;

/// Most topics that one GET_CONSUME_STATS visits; the rest is left out.
pub const STATS_TOPICS_MAX: usize = 10_000;

// Every consumer group needs a retry topic beside the topics it reads.
const _: () = assert!(TOPICS_MAX >= GROUPS_MAX);
const _: () = assert!(SUBSCRIPTIONS_PER_GROUP_MAX <= TOPICS_MAX);
