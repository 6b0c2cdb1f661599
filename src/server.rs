//! Runs what the command line asks for, until it is asked to stop.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{Exposure, Settings};
use crate::nameserver::{self, NameserverOptions};
use crate::{broker, shard};

pub use crate::config::Role;

/// Why the process could not start, or not stop cleanly.
#[derive(Debug)]
pub struct StartError(
    /// What went wrong, for people.
    pub String,
);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Runs until the process gets SIGTERM or SIGINT, then stops cleanly.
///
/// # Errors
/// [`StartError`] with what is in the way.
pub fn run(role: Role, settings: Arc<Settings>) -> Result<(), StartError> {
    // Taken over first: a signal during the start is not lost.
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|error| StartError(error.to_string()))?;
    let addresses = settings.addresses();
    let mut settings = settings;
    if matches!(role, Role::Server | Role::Nameserver) {
        start_nameserver(&settings, addresses.bind)?;
    }
    if role == Role::Server && settings.namesrv_addr.is_empty() {
        let mut own = Settings::clone(&settings);
        let reach = SocketAddr::new(reachable(addresses.bind), settings.nameserver_port);
        own.namesrv_addr = vec![reach.to_string()];
        settings = Arc::new(own);
    }
    let brokers = match role {
        Role::Nameserver => Vec::new(),
        Role::Server | Role::Broker => {
            let nameserver_port = (role == Role::Server).then_some(settings.nameserver_port);
            let brokers = broker::start(&settings, &addresses, nameserver_port)
                .map_err(|error| StartError(error.to_string()))?;
            for broker in &brokers {
                let settings = broker.settings();
                tracing::info!(
                    name = settings.broker_name,
                    listen = %broker.listen(),
                    advertised = %broker.advertised(),
                    because = %addresses.source,
                    shards = broker.shards(),
                    ack = ?settings.flush_disk_type,
                    store = %settings.store_path_root_dir.display(),
                    nameservers = settings.namesrv_addr.join(";"),
                    "broker ready"
                );
            }
            if settings.namesrv_addr.is_empty() {
                tracing::warn!("namesrvAddr is not set: no client finds this broker");
            }
            brokers
        }
    };
    if settings.exposure == Exposure::Open || addresses.is_open() {
        tracing::warn!(
            "anyone who reaches these ports may read, write and delete everything: \
             keep them inside a trusted network"
        );
    }
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "stopping");
    }
    if !brokers.is_empty() {
        broker::stop(&brokers).map_err(StartError)?;
        tracing::info!("stopped: everything acknowledged is on the device");
    }
    // Executors are not taken apart: nothing is left for them to do.
    std::process::exit(0);
}

fn start_nameserver(settings: &Settings, bind: IpAddr) -> Result<(), StartError> {
    let listen = SocketAddr::new(bind, settings.nameserver_port);
    let cpus = shard::allowed_cpus().map_err(|error| StartError(error.to_string()))?;
    let options = NameserverOptions {
        listen,
        dir: settings.store_path_root_dir.join("namesrv"),
        cpu: cpus[cpus.len() - 1],
        connections_max: settings.connections_max as usize,
        idle: Duration::from_secs(settings.server_channel_max_idle_time_s),
    };
    nameserver::start(options).map_err(StartError)?;
    tracing::info!(%listen, "nameserver ready");
    Ok(())
}

/// An address at which this process reaches what it bound to `bind`.
fn reachable(bind: IpAddr) -> IpAddr {
    match bind {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}
