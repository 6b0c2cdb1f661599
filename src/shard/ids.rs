//! Names of shards and of the connections they hold.

use std::fmt;

/// Number of a shard, from 0. Shard *k* owns log *k* of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The shard that owns the control state: topics, groups, membership.
    pub const CONTROL: ShardId = ShardId(0);

    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One accepted connection: the shard that holds it, and its place there.
///
/// A number is never used for two connections: a message for a connection that
/// is gone finds no one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// The shard that accepted the connection.
    pub shard: ShardId,
    /// Place in that shard's table.
    pub slot: u32,
    /// How many connections have had the place before.
    pub generation: u32,
}
