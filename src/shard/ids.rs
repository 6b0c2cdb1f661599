//! Names of connections.

use crate::store::ShardId;

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
