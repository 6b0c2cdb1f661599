//! The list of nameservers, and which one is asked.
//!
//! One is asked until it fails; then the next one is, and stays the chosen one
//! (`NettyRemotingClient.getAndCreateNameserverChannel`).

use std::sync::Arc;

use crate::client::settings::parse_address;

/// Most nameservers of a list; more are left out.
pub(super) const NAME_SERVERS_MAX: usize = 64;

/// The list.
#[derive(Debug, Default)]
pub(super) struct NameServers {
    addresses: Vec<Arc<str>>,
    chosen: usize,
}

/// One question to nameservers: whom it was put to, and what they did.
#[derive(Debug, Default)]
pub(super) struct Round {
    asked: Vec<Arc<str>>,
    /// What each of them did, for an error.
    pub tried: Vec<String>,
}

impl NameServers {
    /// Begins with one by chance, so that clients are spread among nameservers.
    pub fn new(addresses: &[String], random: u64) -> NameServers {
        let mut servers = NameServers::default();
        servers.replace(addresses);
        if !servers.addresses.is_empty() {
            servers.chosen = (random % servers.addresses.len() as u64) as usize;
        }
        servers
    }

    /// Replaces the list by the good ones of `addresses`; where there is none it stays.
    pub fn replace(&mut self, addresses: &[String]) {
        let mut good: Vec<Arc<str>> = Vec::new();
        for address in addresses.iter().take(NAME_SERVERS_MAX) {
            match parse_address(address) {
                Ok(_) if good.iter().any(|known| **known == **address) => {}
                Ok(_) => good.push(Arc::from(address.as_str())),
                Err(what) => tracing::warn!("nameserver {address:?} {what}: left out"),
            }
        }
        if good.is_empty() {
            return;
        }
        let chosen = self.addresses.get(self.chosen);
        let kept = good.iter().position(|address| Some(address) == chosen);
        self.chosen = kept.unwrap_or(0);
        self.addresses = good;
    }

    /// Whom to put a question to next: the chosen one, then each other one once.
    pub fn next(&self, round: &mut Round) -> Option<Arc<str>> {
        let count = self.addresses.len();
        let turn = (0..count).map(|step| &self.addresses[(self.chosen + step) % count]);
        let mut open = turn.filter(|address| !round.asked.contains(address));
        let address = open.next()?.clone();
        round.asked.push(address.clone());
        Some(address)
    }

    /// One failed: the next one is chosen, if it was the chosen one.
    pub fn failed(&mut self, address: &str) {
        if self
            .addresses
            .get(self.chosen)
            .is_some_and(|chosen| **chosen == *address)
        {
            self.chosen = (self.chosen + 1) % self.addresses.len();
        }
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Whether it is one of them.
    pub fn contains(&self, address: &str) -> bool {
        self.addresses.iter().any(|known| **known == *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(list: &[&str], random: u64) -> NameServers {
        let list: Vec<String> = list.iter().map(|&text| text.to_owned()).collect();
        NameServers::new(&list, random)
    }

    #[test]
    fn each_is_asked_once_a_round_and_the_one_that_works_stays_chosen() {
        let mut servers = servers(&["a:1", "b:1", "c:1"], 1);
        let mut round = Round::default();
        assert_eq!(&*servers.next(&mut round).unwrap(), "b:1");
        servers.failed("b:1");
        assert_eq!(&*servers.next(&mut round).unwrap(), "c:1");
        // A late failure of one that is no longer chosen changes nothing.
        servers.failed("b:1");
        let mut other = Round::default();
        assert_eq!(&*servers.next(&mut other).unwrap(), "c:1");
        assert_eq!(&*servers.next(&mut round).unwrap(), "a:1");
        assert_eq!(servers.next(&mut round), None);
    }

    #[test]
    fn a_list_without_a_good_address_changes_nothing() {
        let mut servers = servers(&["a:1"], 0);
        servers.replace(&["b:0".into(), "\n:1".into(), String::new()]);
        assert!(servers.contains("a:1"));
        servers.replace(&["b:0".into(), "b:1".into(), "b:1".into()]);
        assert_eq!(servers.addresses.len(), 1);
        assert!(servers.contains("b:1") && !servers.contains("a:1"));
    }

    #[test]
    fn the_chosen_one_stays_when_the_list_grows() {
        let mut servers = servers(&["a:1", "b:1"], 1);
        servers.replace(&["c:1".into(), "b:1".into(), "a:1".into()]);
        assert_eq!(&*servers.next(&mut Round::default()).unwrap(), "b:1");
    }
}
