//! Which brokers a process is to clients and nameservers (`routeMode`).
//!
//! | `routeMode` | brokers | of each |
//! | --- | --- | --- |
//! | `single` | one | all shards, on one port, and the lanes between them |
//! | `perShard` | one a shard | a shard, a name, a port and a store of its own |
//!
//! Under `perShard` every shard is a whole broker: it has its own topics, queues from 0
//! on, groups, offsets, locks and delays, in the folder of its log, and its own
//! registration. That is the cluster of several brokers that clients and tools of
//! RocketMQ know, so all of it means what it means there, a client connects to the
//! shard that has the queue, and nothing of a request crosses cores. Translating the
//! queues of one broker into those of several was the other way: but a stored message
//! names its queue, clients read it there, and a log holds what clients are given.
//!
//! The price: queue 0 of a topic is another queue on every shard, so a store of
//! several shards keeps the mode that it was made with. One of a single shard is the
//! same under both; it becomes `brokerName`, and the shards that are added begin empty.
//!
//! What brokers of one process share is the process: its connections, memory, disk,
//! start and stop. A topic that a send makes on one is made on all ([`super::siblings`]).

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::config::limits::{NAME_BYTES_MAX, SHARD_PORT_STEP};
use crate::config::{Addresses, RouteMode, Settings};
use crate::store::{LogOwners, ShardId, StoreLayout};

/// One broker of the process.
#[derive(Debug)]
pub(super) struct Member {
    /// What it runs with: name, port and folder are its own.
    pub settings: Arc<Settings>,
    /// Its folder: `config/`, `lock` and `abort`.
    pub layout: StoreLayout,
    /// Its logs, one a shard, numbered through the process.
    pub logs: Range<u16>,
    /// What it listens on.
    pub listen: SocketAddr,
    /// The address that clients are given.
    pub store_host: SocketAddr,
}

impl Member {
    /// Number of its shards.
    pub fn shards(&self) -> u16 {
        self.logs.end - self.logs.start
    }
}

/// Whose the logs are under a route mode.
pub(super) fn owners(mode: RouteMode) -> LogOwners {
    match mode {
        RouteMode::Single => LogOwners::One,
        RouteMode::PerShard => LogOwners::Each,
    }
}

/// The brokers of a process with `shards` shards, by their logs. `nameserver_port`: where
/// this process has a nameserver.
///
/// # Errors
/// Text: a port that is none or taken, a name that is too long.
pub(super) fn members(
    settings: &Arc<Settings>,
    addresses: &Addresses,
    shards: u16,
    nameserver_port: Option<u16>,
) -> Result<Vec<Member>, String> {
    let root = StoreLayout::new(&settings.store_path_root_dir);
    let member = |settings: Arc<Settings>, layout: StoreLayout, logs| Member {
        listen: SocketAddr::new(addresses.bind, settings.listen_port),
        store_host: SocketAddr::new(addresses.advertised, settings.listen_port),
        settings,
        layout,
        logs,
    };
    if settings.route_mode == RouteMode::Single {
        return Ok(vec![member(settings.clone(), root, 0..shards)]);
    }
    let one = |log: u16| {
        let layout = root.of_log(ShardId(log));
        let own = Settings {
            broker_name: name(&settings.broker_name, log)?,
            listen_port: port(settings.listen_port, log, shards, nameserver_port)?,
            shards: Some(1),
            store_path_root_dir: layout.root().to_owned(),
            ..Settings::clone(settings)
        };
        Ok(member(own.into(), layout, log..log + 1))
    };
    (0..shards).map(one).collect()
}

/// The name of the broker of shard `log`: `broker-a`, `broker-a-1`, ...
fn name(first: &str, log: u16) -> Result<String, String> {
    if log == 0 {
        return Ok(first.to_owned());
    }
    let name = format!("{first}-{log}");
    if name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "routeMode = perShard: shard {log} is the broker {name}, but a name has at most \
             {NAME_BYTES_MAX} bytes: brokerName is too long"
        ));
    }
    Ok(name)
}

/// The port of shard `log`.
fn port(first: u16, log: u16, shards: u16, nameserver_port: Option<u16>) -> Result<u16, String> {
    let port = u32::from(first) + u32::from(SHARD_PORT_STEP) * u32::from(log);
    let listens = || {
        format!(
            "routeMode = perShard: shard {log} listens on listenPort + {SHARD_PORT_STEP} * {log} \
             = {port}"
        )
    };
    let Ok(port) = u16::try_from(port) else {
        let above = u32::from(SHARD_PORT_STEP) * u32::from(shards - 1);
        return Err(format!(
            "{}, but the highest port is {}: with {shards} shards listenPort can be at most {}",
            listens(),
            u16::MAX,
            u32::from(u16::MAX).saturating_sub(above)
        ));
    };
    if nameserver_port == Some(port) {
        return Err(format!("{}, and so does nameserverPort", listens()));
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::address::Source;
    use std::net::{IpAddr, Ipv4Addr};

    fn planned(settings: Settings, shards: u16) -> Result<Vec<Member>, String> {
        let addresses = Addresses {
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            advertised: IpAddr::V4(Ipv4Addr::LOCALHOST),
            source: Source::Bound,
        };
        members(&settings.into(), &addresses, shards, Some(9876))
    }

    fn per_shard(port: u16, name: &str) -> Settings {
        Settings {
            route_mode: RouteMode::PerShard,
            listen_port: port,
            broker_name: name.to_owned(),
            ..Settings::default()
        }
    }

    #[test]
    fn one_broker_has_all_shards_or_each_shard_is_one() {
        let all = planned(Settings::default(), 3).unwrap();
        assert_eq!((all.len(), all[0].logs.clone()), (1, 0..3));
        assert_eq!(*all[0].settings, Settings::default());

        let each = planned(per_shard(10_911, "b"), 3).unwrap();
        let facts = |member: &Member| {
            let settings = &member.settings;
            assert_eq!(settings.listen_port, member.listen.port());
            assert_eq!(settings.listen_port, member.store_host.port());
            assert_eq!(settings.store_path_root_dir, member.layout.root());
            let dir = member.layout.root().display().to_string();
            let port = settings.listen_port;
            (settings.broker_name.clone(), port, dir, member.shards())
        };
        let expected = [
            ("b", 10_911, "ringmq-data"),
            ("b-1", 10_921, "ringmq-data/shard-1"),
            ("b-2", 10_931, "ringmq-data/shard-2"),
        ];
        let expected = expected.map(|(name, port, dir)| (name.into(), port, dir.into(), 1));
        assert_eq!(each.iter().map(facts).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_limit() {
        assert!(planned(per_shard(65_505, "b"), 4).is_ok());
        let text = planned(per_shard(65_506, "b"), 4).unwrap_err();
        assert!(text.contains("= 65536") && text.contains("65505"), "{text}");
        let text = planned(per_shard(9856, "b"), 3).unwrap_err();
        assert!(
            text.contains("shard 2") && text.contains("nameserverPort"),
            "{text}"
        );
        assert!(planned(per_shard(9856, "b"), 2).is_ok());
        let long = "b".repeat(NAME_BYTES_MAX - 1);
        assert!(planned(per_shard(1, &long), 1).is_ok());
        let text = planned(per_shard(1, &long), 2).unwrap_err();
        assert!(text.contains("brokerName"), "{text}");
    }
}
