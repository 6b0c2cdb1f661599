//! Where the ports are bound, and the address that clients are told.

use std::ffi::CStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// Who can reach the ports unless `bindAddress` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// This machine alone: `ringmq server` without any configuration.
    Loopback,
    /// Every machine that can reach one of this machine's addresses.
    Open,
}

/// One address of one network interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface, `eth0`.
    pub name: String,
    /// One of its addresses.
    pub address: IpAddr,
}

/// Why an address is given to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `brokerIP1` names it.
    BrokerIp1,
    /// The ports are bound to it alone.
    Bound,
    /// It is the first usable address of this interface.
    Interface(String),
    /// No interface has a usable address: only this machine can use it.
    NothingElse,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BrokerIp1 => f.write_str("brokerIP1"),
            Source::Bound => f.write_str("the bound address"),
            Source::Interface(name) => write!(f, "the first address of {name}"),
            Source::NothingElse => f.write_str("no other address on this machine"),
        }
    }
}

/// Addresses of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// What the ports are bound to; unspecified (`0.0.0.0`, `::`) for all interfaces.
    pub bind: IpAddr,
    /// What clients are told, and the store host of every message. Never unspecified.
    pub advertised: IpAddr,
    /// Why it is `advertised`.
    pub source: Source,
}

impl Addresses {
    /// Whether other machines can reach the ports.
    pub fn is_open(&self) -> bool {
        !self.bind.is_loopback()
    }
}

/// Chooses both addresses. `bind_address` and `broker_ip1` are used as they are when set.
pub fn choose(
    exposure: Exposure,
    bind_address: Option<IpAddr>,
    broker_ip1: Option<IpAddr>,
    interfaces: &[Interface],
) -> Addresses {
    let bind = bind_address.unwrap_or_else(|| match exposure {
        Exposure::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Exposure::Open => default_bind(interfaces),
    });
    let (advertised, source) = if let Some(address) = broker_ip1.filter(|a| !a.is_unspecified()) {
        (address, Source::BrokerIp1)
    } else if !bind.is_unspecified() {
        (bind, Source::Bound)
    } else {
        // `::` takes IPv4 connections as well, `0.0.0.0` takes nothing else.
        let v6_too = bind.is_ipv6();
        match first_usable(interfaces, v6_too) {
            Some(found) => (found.address, Source::Interface(found.name.clone())),
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), Source::NothingElse),
        }
    };
    Addresses {
        bind,
        advertised,
        source,
    }
}

/// All interfaces: `0.0.0.0`, or `::` on a machine that has IPv6 addresses alone.
fn default_bind(interfaces: &[Interface]) -> IpAddr {
    let v4 = first_usable(interfaces, false).is_some();
    if !v4 && first_usable(interfaces, true).is_some() {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    }
}

/// The first of the best: IPv4 before IPv6, within each a real interface before a bridge of
/// containers. Bridges have addresses that no other machine can reach.
fn first_usable(interfaces: &[Interface], v6_too: bool) -> Option<&Interface> {
    interfaces
        .iter()
        .filter(|i| is_routable(i.address) && (v6_too || i.address.is_ipv4()))
        .min_by_key(|i| (is_virtual(&i.name), i.address.is_ipv6()))
}

/// Whether another machine can use the address without naming an interface.
fn is_routable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || link_local)
}

/// Whether the name is one that container and VM managers give to their bridges and pairs.
fn is_virtual(name: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "docker", "veth", "br-", "virbr", "lxcbr", "lxdbr", "cni", "flannel", "cali", "podman",
        "vmnet", "vboxnet",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The addresses of the interfaces that are up, in the kernel's order. Empty where they cannot
/// be listed.
pub fn interfaces() -> Vec<Interface> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is a valid place for the result.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: getifaddrs made a list whose links are valid until freeifaddrs below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as libc::c_uint == 0 || entry.ifa_name.is_null() {
            continue;
        }
        // SAFETY: an address of the list is null or valid as long as the list is.
        let Some(address) = (unsafe { ip_of(entry.ifa_addr) }) else {
            continue;
        };
        // SAFETY: not null, and ended by a zero byte.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        found.push(Interface {
            name: name.to_string_lossy().into_owned(),
            address,
        });
    }
    // SAFETY: `list` comes from getifaddrs, and nothing above outlives this.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// The IP address in a socket address.
///
/// # Safety
/// `address` is null, or points to a socket address of the length that its family has.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null; every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says which type it is.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says which type it is.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn machine(list: &[(&str, &str)]) -> Vec<Interface> {
        list.iter()
            .map(|(name, address)| Interface {
                name: (*name).to_owned(),
                address: ip(address),
            })
            .collect()
    }

    fn usual() -> Vec<Interface> {
        machine(&[
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "fe80::1"),
            ("eth0", "2001:db8::5"),
            ("eth0", "10.0.0.5"),
        ])
    }

    fn open(bind: Option<&str>, ip1: Option<&str>, interfaces: &[Interface]) -> Addresses {
        choose(Exposure::Open, bind.map(ip), ip1.map(ip), interfaces)
    }

    #[test]
    fn closed_means_this_machine_alone() {
        let chosen = choose(Exposure::Loopback, None, None, &usual());
        assert_eq!(chosen.bind, ip("127.0.0.1"));
        assert_eq!(chosen.advertised, ip("127.0.0.1"));
        assert!(!chosen.is_open());
    }

    #[test]
    fn open_listens_everywhere_and_gives_the_first_real_address() {
        let chosen = open(None, None, &usual());
        assert_eq!(chosen.bind, ip("0.0.0.0"));
        assert_eq!(chosen.advertised, ip("10.0.0.5"));
        assert_eq!(chosen.source, Source::Interface("eth0".into()));
        assert!(chosen.is_open());
    }

    #[test]
    fn broker_ip1_is_given_as_it_is() {
        let chosen = open(None, Some("203.0.113.9"), &usual());
        assert_eq!(chosen.bind, ip("0.0.0.0"));
        assert_eq!(chosen.advertised, ip("203.0.113.9"));
        let both = open(Some("10.0.0.5"), Some("203.0.113.9"), &usual());
        assert_eq!(both.bind, ip("10.0.0.5"));
        assert_eq!(both.advertised, ip("203.0.113.9"));
    }

    #[test]
    fn a_bound_address_is_the_one_given() {
        let chosen = open(Some("2001:db8::5"), None, &usual());
        assert_eq!(chosen.advertised, ip("2001:db8::5"));
        assert_eq!(chosen.source, Source::Bound);
    }

    #[test]
    fn an_unspecified_address_is_never_given() {
        for bind in ["0.0.0.0", "::"] {
            for ip1 in [None, Some("0.0.0.0"), Some("::")] {
                assert_eq!(open(Some(bind), ip1, &usual()).advertised, ip("10.0.0.5"));
            }
        }
    }

    #[test]
    fn a_bridge_is_better_than_nothing() {
        let machine = machine(&[("lo", "127.0.0.1"), ("docker0", "172.17.0.1")]);
        assert_eq!(open(None, None, &machine).advertised, ip("172.17.0.1"));
    }

    #[test]
    fn a_machine_without_addresses_gives_loopback() {
        let chosen = open(None, None, &machine(&[("lo", "127.0.0.1"), ("lo", "::1")]));
        assert_eq!(chosen.bind, ip("0.0.0.0"));
        assert_eq!(chosen.advertised, ip("127.0.0.1"));
        assert_eq!(chosen.source, Source::NothingElse);
    }

    #[test]
    fn a_machine_with_ipv6_alone_listens_on_it() {
        let machine = machine(&[
            ("lo", "127.0.0.1"),
            ("eth0", "fe80::1"),
            ("eth0", "2001:db8::5"),
        ]);
        let chosen = open(None, None, &machine);
        assert_eq!(chosen.bind, ip("::"));
        assert_eq!(chosen.advertised, ip("2001:db8::5"));
    }

    #[test]
    fn this_machine_can_be_asked() {
        assert!(interfaces().iter().any(|i| i.address.is_loopback()));
    }
}
