//! Settings: RocketMQ's keys, their bounds, and where they come from.
//!
//! [`load`] reads a properties file and the command line into [`Settings`], once, before any
//! thread is started. `Settings` is shared as an `Arc` and never changes in place:
//! [`Settings::update`] is applied to a copy by the shard that owns the control state.
//!
//! A key belongs to one of four kinds: used ([`KEYS`]); RocketMQ's and without effect here,
//! accepted and listed once; RocketMQ's and asking for something that is missing, refused; not
//! known, refused with the nearest known one.

pub mod address;
mod keys;
pub mod limits;
mod load;
pub mod properties;
mod settings;
#[cfg(test)]
mod tests;
mod value;

pub use address::{Addresses, Exposure};
pub use keys::{Change, KEYS, Key, without_effect};
pub use load::{ConfigError, Loaded, Origin, Sources, UpdateError, load};
pub use settings::{Role, Settings};
pub use value::{Allowed, BrokerRole, FlushDiskType, Hours, RouteMode};
