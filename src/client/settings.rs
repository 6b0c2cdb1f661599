//! Settings of the client and of its producers and consumers, with the Java client's
//! defaults. Each has a `check()` that names the first value out of its bounds.
//!
//! All times are milliseconds, all sizes bytes, unless a name says otherwise.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::{Error, Result};
use super::hooks::{ConsumeHook, FaultHook, Hooks, QueueHook, RequestHook, SendHook};
use super::message::MessageQueue;
use crate::wire::names;

mod consumer;

pub use consumer::{
    AllocateStrategy, Listening, PullConsumerSettings, PushConsumerSettings, SetupOfGroup,
};

/// Where the addresses of nameservers come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NameServers {
    /// The environment variable `NAMESRV_ADDR`: `host:port;host:port`.
    #[default]
    Environment,
    /// These, each `host:port`.
    List(Vec<String>),
    /// What a web server answers to GET on this `http://` address: `host:port;host:port`.
    /// It is asked at the start and every 2 minutes.
    AddressServer(String),
}

impl NameServers {
    /// The addresses of a text as `NAMESRV_ADDR` has it, parted by `;`.
    pub fn parse(text: &str) -> Vec<String> {
        let parts = text.split(';').map(str::trim);
        parts.filter(|p| !p.is_empty()).map(str::to_owned).collect()
    }
}

/// Settings of one client instance: one thread, one connection to each broker
/// (`ClientConfig`).
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Where nameservers are.
    pub name_servers: NameServers,
    /// Name of this instance in the client id `ip@instance`; made of process id and time
    /// where it is not set.
    pub instance_name: Option<String>,
    /// Unit of a larger installation, the third part of the client id.
    pub unit_name: Option<String>,
    /// Address in client id and message ids; that of the first interface where it is not set.
    pub client_ip: Option<IpAddr>,
    /// How often routes of known topics are asked for, 10 to 3,600,000 (30,000).
    pub poll_name_server_interval_ms: u64,
    /// How often brokers hear of this client, 1,000 to 60,000 (30,000).
    pub heartbeat_broker_interval_ms: u64,
    /// How often consumed offsets are stored, 100 to 3,600,000 (5,000).
    pub persist_consumer_offset_interval_ms: u64,
    /// How often queues are shared out anew, 100 to 3,600,000 (20,000).
    pub rebalance_interval_ms: u64,
    /// Time to connect, 1 to 600,000 (3,000).
    pub connect_timeout_ms: u64,
    /// Time for the client's own requests: routes, heartbeats, offsets; 1 to 600,000 (3,000).
    pub api_timeout_ms: u64,
    /// Time after which a connection without use is closed, 1,000 to 3,600,000 (120,000).
    pub channel_idle_ms: u64,
    /// Folder of the offsets of broadcasting consumers; `~/.rocketmq_offsets` where it is
    /// not set.
    pub offset_store_dir: Option<PathBuf>,
    /// See every request and answer.
    pub request_hooks: Hooks<dyn RequestHook>,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            name_servers: NameServers::default(),
            instance_name: None,
            unit_name: None,
            client_ip: None,
            poll_name_server_interval_ms: 30_000,
            heartbeat_broker_interval_ms: 30_000,
            persist_consumer_offset_interval_ms: 5_000,
            rebalance_interval_ms: 20_000,
            connect_timeout_ms: 3_000,
            api_timeout_ms: 3_000,
            channel_idle_ms: 120_000,
            offset_store_dir: None,
            request_hooks: Hooks::default(),
        }
    }
}

impl ClientSettings {
    /// Settings with these nameservers, `host:port;host:port`.
    pub fn with_name_servers(addresses: &str) -> ClientSettings {
        ClientSettings {
            name_servers: NameServers::List(NameServers::parse(addresses)),
            ..ClientSettings::default()
        }
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// [`super::error::ErrorKind::Settings`] for the first value out of its bounds.
    pub fn check(&self) -> Result<()> {
        match &self.name_servers {
            NameServers::Environment => {}
            NameServers::List(addresses) => {
                if addresses.is_empty() {
                    return Err(Error::setting("name_servers", "the list is empty"));
                }
                for address in addresses {
                    check_address("name_servers", address)?;
                }
            }
            NameServers::AddressServer(url) => {
                if !url.starts_with("http://") || url.chars().any(char::is_control) {
                    let what = format!("{url:?} is no http:// address");
                    return Err(Error::setting("name_servers", what));
                }
            }
        }
        for (name, value) in [
            ("instance_name", &self.instance_name),
            ("unit_name", &self.unit_name),
        ] {
            let Some(value) = value else { continue };
            if value.is_empty() || value.len() > 255 || value.chars().any(char::is_control) {
                let what = format!("{value:?} is not 1 to 255 bytes without control characters");
                return Err(Error::setting(name, what));
            }
        }
        let within = |name, value, bounds| check_range(name, value, bounds);
        let poll = self.poll_name_server_interval_ms;
        within("poll_name_server_interval_ms", poll, 10..=HOUR_MS)?;
        let heartbeat = self.heartbeat_broker_interval_ms;
        within("heartbeat_broker_interval_ms", heartbeat, 1_000..=60_000)?;
        let persist = self.persist_consumer_offset_interval_ms;
        within(
            "persist_consumer_offset_interval_ms",
            persist,
            100..=HOUR_MS,
        )?;
        let rebalance = self.rebalance_interval_ms;
        within("rebalance_interval_ms", rebalance, 100..=HOUR_MS)?;
        within(
            "connect_timeout_ms",
            self.connect_timeout_ms,
            1..=TIMEOUT_MS_MAX,
        )?;
        within("api_timeout_ms", self.api_timeout_ms, 1..=TIMEOUT_MS_MAX)?;
        within("channel_idle_ms", self.channel_idle_ms, 1_000..=HOUR_MS)
    }
}

/// Longest timeout of any request, ms.
pub const TIMEOUT_MS_MAX: u64 = 600_000;

const HOUR_MS: u64 = 3_600_000;

/// How a large body is compressed before it is sent (`CompressionType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Deflate, the one that every client reads.
    #[default]
    Zlib,
    /// LZ4 frames; read by Java clients from 4.9.4 on.
    Lz4,
    /// Zstandard; read by Java clients from 4.9.4 on.
    Zstd,
}

/// Settings of a producer (`DefaultMQProducer`).
#[derive(Clone, Debug)]
pub struct ProducerSettings {
    /// Producer group, 1 to 120 bytes of `%|a-zA-Z0-9_-`.
    pub group: Arc<str>,
    /// Time for a whole send with all its tries, 1 to 600,000 (3,000).
    pub send_timeout_ms: u64,
    /// Time for one try of those, 1 to 600,000; not limited where it is not set
    /// (`sendMsgMaxTimeoutPerRequest`).
    pub send_timeout_per_try_ms: Option<u64>,
    /// More tries of a blocking send after the first, 0 to 64 (2).
    pub retry_times_when_send_failed: u32,
    /// More tries of an asynchronous send after the first, 0 to 64 (2).
    pub retry_times_when_send_async_failed: u32,
    /// Whether a message that is stored, but not as safely as the broker's settings ask for,
    /// is sent to another broker as well (`false`).
    pub retry_another_broker_when_not_store_ok: bool,
    /// Longest body, after no compression, 1 to 16,711,680 (4 MiB).
    pub max_message_size: usize,
    /// Body from which on it is compressed, 0 to `usize::MAX` (4,096).
    pub compress_body_over: usize,
    /// How (zlib).
    pub compression: Compression,
    /// How hard: 0 to 9 for zlib (5), 0 to 9 for zstd, nothing for LZ4.
    pub compress_level: u32,
    /// Topic whose settings an unknown topic is made with (`TBW102`).
    pub create_topic_key: Arc<str>,
    /// Most queues of a topic made that way, 1 to 1,024 (4).
    pub default_topic_queue_nums: u32,
    /// Whether brokers are avoided for as long as their latency asks for (`false`).
    pub send_latency_fault_enable: bool,
    /// Whether brokers that are avoided are probed, and used again as soon as they answer
    /// (`startDetectorEnable`, `false`).
    pub start_detector_enable: bool,
    /// Latencies from which on the next class begins, ms, rising; at most 16.
    pub latency_max_ms: Vec<u64>,
    /// How long a broker of each class is avoided, ms; as many as `latency_max_ms`.
    pub not_available_duration_ms: Vec<u64>,
    /// Most sends on their way, 1 to 1,000,000 (10,000). Who sends more waits, at most for the
    /// timeout of the send, which goes on meanwhile.
    pub in_flight_max: usize,
    /// Most bytes of bodies and properties on their way, 64 KiB to 4 GiB (100 MiB). One
    /// message alone is always let through.
    pub in_flight_bytes_max: usize,
    /// See every try of every send.
    pub send_hooks: Hooks<dyn SendHook>,
}

impl Default for ProducerSettings {
    fn default() -> ProducerSettings {
        ProducerSettings {
            group: Arc::from("DEFAULT_PRODUCER"),
            send_timeout_ms: 3_000,
            send_timeout_per_try_ms: None,
            retry_times_when_send_failed: 2,
            retry_times_when_send_async_failed: 2,
            retry_another_broker_when_not_store_ok: false,
            max_message_size: 4 * 1024 * 1024,
            compress_body_over: 4096,
            compression: Compression::default(),
            compress_level: 5,
            create_topic_key: Arc::from(names::AUTO_CREATE_TOPIC),
            default_topic_queue_nums: 4,
            send_latency_fault_enable: false,
            start_detector_enable: false,
            latency_max_ms: vec![50, 100, 550, 1_800, 3_000, 5_000, 15_000],
            not_available_duration_ms: vec![0, 0, 2_000, 5_000, 6_000, 10_000, 30_000],
            in_flight_max: 10_000,
            in_flight_bytes_max: 100 * 1024 * 1024,
            send_hooks: Hooks::default(),
        }
    }
}

impl ProducerSettings {
    /// Default settings of a producer of `group`.
    pub fn new(group: impl Into<Arc<str>>) -> ProducerSettings {
        ProducerSettings {
            group: group.into(),
            ..ProducerSettings::default()
        }
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// [`super::error::ErrorKind::Settings`] for the first value out of its bounds.
    pub fn check(&self) -> Result<()> {
        check_group(&self.group)?;
        check_range("send_timeout_ms", self.send_timeout_ms, 1..=TIMEOUT_MS_MAX)?;
        if let Some(ms) = self.send_timeout_per_try_ms {
            check_range("send_timeout_per_try_ms", ms, 1..=TIMEOUT_MS_MAX)?;
        }
        let times = u64::from(self.retry_times_when_send_failed);
        check_range("retry_times_when_send_failed", times, 0..=64)?;
        let times = u64::from(self.retry_times_when_send_async_failed);
        check_range("retry_times_when_send_async_failed", times, 0..=64)?;
        let size = self.max_message_size as u64;
        check_range("max_message_size", size, 1..=MESSAGE_BYTES_MAX as u64)?;
        let level = u64::from(self.compress_level);
        check_range("compress_level", level, 0..=9)?;
        names::check_topic(&self.create_topic_key)
            .map_err(|error| Error::setting("create_topic_key", error.to_string()))?;
        let queues = u64::from(self.default_topic_queue_nums);
        check_range("default_topic_queue_nums", queues, 1..=1_024)?;
        let (latency, avoided) = (&self.latency_max_ms, &self.not_available_duration_ms);
        if latency.len() != avoided.len() || latency.is_empty() || latency.len() > 16 {
            let (latency, avoided) = (latency.len(), avoided.len());
            let what = format!("{latency} classes and {avoided} durations, 1 to 16 of each");
            return Err(Error::setting("latency_max_ms", what));
        }
        if !latency.is_sorted() {
            return Err(Error::setting("latency_max_ms", "the classes do not rise"));
        }
        for &ms in avoided {
            check_range("not_available_duration_ms", ms, 0..=HOUR_MS)?;
        }
        let sends = self.in_flight_max as u64;
        check_range("in_flight_max", sends, 1..=1_000_000)?;
        let bytes = self.in_flight_bytes_max as u64;
        check_range("in_flight_bytes_max", bytes, 65_536..=1 << 32)
    }
}

/// Largest `max_message_size`, bytes: a frame with it, its properties and its header still
/// fits in [`crate::wire::frame::FRAME_BYTES_MAX`].
pub const MESSAGE_BYTES_MAX: usize = crate::wire::frame::FRAME_BYTES_MAX - 65_536;

fn check_range(name: &'static str, value: u64, bounds: RangeInclusive<u64>) -> Result<()> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let (low, high) = (bounds.start(), bounds.end());
    Err(Error::setting(
        name,
        format!("{value} is not within {low}..={high}"),
    ))
}

fn check_group(group: &str) -> Result<()> {
    names::check_group(group).map_err(|error| Error::setting("group", error.to_string()))
}

/// Checks that an address is `host:port` with a port from 1 on.
pub(crate) fn check_address(name: &'static str, address: &str) -> Result<()> {
    parse_address(address).map(drop).map_err(|what| {
        // Shown with escapes: it may be made to confuse a terminal.
        Error::setting(name, format!("{address:?} {what}"))
    })
}

/// Takes `host:port` apart. The host may be an IPv6 address in brackets.
///
/// # Errors
/// What is wrong with it.
pub fn parse_address(address: &str) -> std::result::Result<(&str, u16), &'static str> {
    if address.len() > 300 {
        return Err("is longer than 300 bytes");
    }
    let (host, port) = address.rsplit_once(':').ok_or("is not host:port")?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let good = match bare {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            (!host.is_empty() && host.chars().all(is_host))
                || host.parse::<std::net::Ipv6Addr>().is_ok()
        }
    };
    if !good {
        return Err("has no host that can be one");
    }
    if port.is_empty() || !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("has no port");
    }
    match port.parse() {
        Ok(0) => Err("has port 0"),
        Ok(port) => Ok((bare.unwrap_or(host), port)),
        Err(_) => Err("has a port above 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_good() {
        ClientSettings::default().check().unwrap();
        ProducerSettings::default().check().unwrap();
        PushConsumerSettings::new("g").check().unwrap();
        PullConsumerSettings::new("g").check().unwrap();
    }

    #[test]
    fn a_value_out_of_bounds_is_named() {
        let settings = ProducerSettings {
            in_flight_max: 0,
            ..ProducerSettings::default()
        };
        assert_eq!(
            settings.check().unwrap_err().to_string(),
            "setting in_flight_max: 0 is not within 1..=1000000"
        );
        assert!(ProducerSettings::new("a b").check().is_err());
        assert!(ClientSettings::with_name_servers("").check().is_err());
        assert!(
            ClientSettings::with_name_servers("a:1;b:0")
                .check()
                .is_err()
        );
        let falling = ProducerSettings {
            latency_max_ms: vec![2, 1],
            not_available_duration_ms: vec![0, 0],
            ..ProducerSettings::default()
        };
        assert!(falling.check().is_err());
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_address("10.0.0.1:9876"), Ok(("10.0.0.1", 9876)));
        assert_eq!(parse_address("mq-1.local:1"), Ok(("mq-1.local", 1)));
        assert_eq!(parse_address("[::1]:9876"), Ok(("::1", 9876)));
        for wrong in [
            "", ":", ":1", "a", "a:", "a:0", "a:65536", "a:-1", "a b:1", "a\n:1", "a:1\n", "[x]:1",
        ] {
            assert!(parse_address(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(
            NameServers::parse(" a:1; b:2 ;;"),
            ["a:1".to_owned(), "b:2".to_owned()]
        );
    }
}
