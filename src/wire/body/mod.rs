//! JSON bodies and JSON files, under their RocketMQ names.
//!
//! Most are plain JSON; a few are fastjson's own dialect, see [`json`].

pub mod heartbeat;
pub mod json;
pub mod lock;
pub mod offset;
pub mod register;
pub mod route;
pub mod stats;
pub mod subscription_group;
pub mod topic;
