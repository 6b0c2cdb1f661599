//! The nameserver: where every topic is, as the brokers tell it.
//!
//! It is a state machine without I/O, clock or threads. One shard owns it and
//! calls it in the order in which things happen; whatever it decides, it decides
//! and carries out in the same call, so no decision can be overtaken by events.
//!
//! ```text
//! broker  --103 topics, address--> registration -> routes    topic -> broker -> queues
//!         --104, 322, 904--------> registration    ^         broker -> addresses
//!         --close, silence-------> liveness -------|
//! client  --105 topic------------> handler --------' (answer cached as bytes)
//! admin   --106, 206, 205, ...---> handler
//!         --100, 101, 102, 219---> kv                        kept in kvConfig.json
//!         --318, 319-------------> config                    kept in namesrv.properties
//! ```
//!
//! Nameservers do not know each other: every broker registers with all of them,
//! and what one forgets in a restart its brokers tell it again within 30 s.
//! Two rules keep a live broker from being forgotten:
//!
//! - What belongs to an older connection of a broker (its close, its
//!   unregistration, a registration of an older edition) has no effect once the
//!   broker has spoken on a newer one.
//! - A broker expires and is removed in one step; a registration that comes
//!   later is a new one.
//!
//! Source of the protocol's rules: `RouteInfoManager`, `DefaultRequestProcessor`,
//! `ClientRequestProcessor`, `KVConfigManager`.

mod clock;
mod config;
mod handler;
mod kv;
mod liveness;
mod registration;
mod routes;
mod serve;
#[cfg(test)]
mod tests;

use crate::wire::body::json::JsonError;
use crate::wire::codes::response;
use crate::wire::command::Response;

pub use config::{Config, ConfigError};
pub use liveness::{BROKERS_MAX, EXPIRY_MS_DEFAULT};
pub use routes::TOPICS_MAX;
pub use serve::{NameserverOptions, start};

use kv::Kv;
use liveness::Liveness;
use routes::Routes;

/// Longest name of a broker, a cluster, a zone or a namespace, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest address of a broker, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// Longest name of a topic, in bytes: a namespace and `%RETRY%` may stand in
/// front of the name of a group, which alone may have 255.
pub const TOPIC_BYTES_MAX: usize = 600;

/// Name under which the key-value configuration is kept, see [`Nameserver::take_dirty`].
pub const KV_FILE: &str = "kvConfig.json";

/// Name under which settings changed at run time are kept, see [`Nameserver::take_dirty`].
pub const CONFIG_FILE: &str = "namesrv.properties";

/// The state of one nameserver. Every time it is given is in milliseconds of one
/// clock that does not run backwards.
pub struct Nameserver {
    config: Config,
    kv: Kv,
    routes: Routes,
    liveness: Liveness,
    started_ms: u64,
    config_dirty: bool,
}

impl Nameserver {
    /// A nameserver that knows no broker yet.
    pub fn new(config: Config, now_ms: u64) -> Nameserver {
        Nameserver {
            config,
            kv: Kv::default(),
            routes: Routes::default(),
            liveness: Liveness::default(),
            started_ms: now_ms,
            config_dirty: false,
        }
    }

    /// Takes over the key-value configuration from the content of [`KV_FILE`].
    ///
    /// # Errors
    /// [`JsonError`] where it cannot be read; nothing has changed then.
    pub fn load_kv(&mut self, bytes: &[u8]) -> Result<(), JsonError> {
        self.kv.load(bytes)?;
        self.routes.forget_answers();
        Ok(())
    }

    /// The files that have changed since the last call, by name and with their
    /// whole content: [`KV_FILE`], and [`CONFIG_FILE`] with the settings changed
    /// at run time, which [`Config::load`] reads again at start. The caller
    /// replaces them atomically.
    pub fn take_dirty(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        if self.kv.take_dirty() {
            files.push((KV_FILE.to_owned(), self.kv.encode()));
        }
        if std::mem::take(&mut self.config_dirty) {
            files.push((CONFIG_FILE.to_owned(), self.config.changes().into_bytes()));
        }
        files
    }

    /// Number of topics known.
    pub fn topic_count(&self) -> usize {
        self.routes.topic_count()
    }

    /// Number of brokers known, counting each address.
    pub fn broker_count(&self) -> usize {
        self.liveness.len()
    }
}

/// An answer with code 1.
fn refusal(remark: impl Into<String>) -> Response {
    Response::error(response::SYSTEM_ERROR, remark)
}

/// Accepts `text` as a name of at most `max` bytes, or says what is wrong with
/// it without repeating it.
fn check_name(what: &str, text: &str, max: usize) -> Result<(), Response> {
    if text.is_empty() {
        return Err(refusal(format!("{what} is empty")));
    }
    if text.len() > max {
        let length = text.len();
        return Err(refusal(format!(
            "{what} has {length} bytes, the limit is {max}"
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(refusal(format!("{what} has a control character in it")));
    }
    Ok(())
}

/// `text` as far as it fits into a remark.
fn shown(text: &str) -> String {
    const CHARS: usize = 128;
    text.chars()
        .take(CHARS)
        .flat_map(char::escape_debug)
        .collect()
}
