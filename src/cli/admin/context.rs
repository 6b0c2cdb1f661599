//! What a command works with.

use super::options::Target;
use crate::cli::show::Failure;
use ringmq::client::admin::{Admin, AdminError, AdminFault, Broker, MASTER};
use ringmq::client::remote::resolve;
use ringmq::wire::body::json;
use ringmq::wire::codes::response;
use ringmq::wire::names;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::Path;

/// What came of something that was done with several brokers: of each, and what failed.
pub type Done<T> = (Vec<(Broker, T)>, Vec<String>);

/// Connections, and what was said about asking.
pub struct Context {
    /// The connections.
    pub admin: Admin,
    /// Nothing is asked.
    pub yes: bool,
}

impl Context {
    /// Asks before something that cannot be undone.
    ///
    /// # Errors
    /// The answer is not yes, or nobody can be asked.
    pub fn confirm(&self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let what = crate::cli::show::clean(what);
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::usage(format!("not done without asking: {what}"))
                .hint("add --yes to do it"));
        }
        eprint!("{what}\nGo on? [y/N] ");
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" if read.is_ok() => Ok(()),
            _ => Err(Failure::usage("not done")),
        }
    }

    /// The masters that a change goes to. Where nothing is said, those of the only cluster there is.
    ///
    /// # Errors
    /// None fits, or there are several clusters to choose from.
    pub fn masters(&mut self, target: &Target) -> Result<Vec<Broker>, Failure> {
        if target.broker.is_none() && target.cluster.is_none() {
            let info = self.admin.cluster_info()?;
            let mut clusters: Vec<&String> = info.cluster_addr_table.keys().collect();
            if clusters.len() != 1 {
                clusters.sort();
                let names: Vec<&str> = clusters.iter().map(|name| name.as_str()).collect();
                return Err(match names.is_empty() {
                    true => Failure::not_found("no broker is registered"),
                    false => Failure::usage(format!("which cluster? {}", names.join(", ")))
                        .hint("-c CLUSTER is all its brokers, -b BROKER is one"),
                });
            }
        }
        Ok(self.admin.brokers(target.select(), true)?)
    }

    /// The brokers that a question goes to, slaves too.
    ///
    /// # Errors
    /// None fits.
    pub fn brokers(&mut self, target: &Target) -> Result<Vec<Broker>, Failure> {
        let brokers = self.admin.brokers(target.select(), false)?;
        match brokers.is_empty() {
            true => Err(Failure::not_found("no broker is registered")),
            false => Ok(brokers),
        }
    }

    /// Does something with every broker. What fails with some is told beside what was done.
    ///
    /// # Errors
    /// It failed with all.
    pub fn each<T>(
        &mut self,
        brokers: &[Broker],
        mut work: impl FnMut(&mut Admin, &Broker) -> Result<T, AdminError>,
    ) -> Result<Done<T>, Failure> {
        let mut done = Vec::new();
        let mut failed: Vec<AdminError> = Vec::new();
        for broker in brokers {
            match work(&mut self.admin, broker) {
                Ok(found) => done.push((broker.clone(), found)),
                Err(error) if error.broker.is_some() => failed.push(error),
                Err(error) => failed.push(error.broker(&broker.name)),
            }
        }
        match failed.is_empty() {
            false if done.is_empty() => Err(failed.swap_remove(0).into()),
            _ => Ok((done, failed.iter().map(AdminError::to_string).collect())),
        }
    }

    /// The brokers of a topic, as far as `-b` (name or address) and `-c` say so.
    ///
    /// # Errors
    /// The topic is not there, or not on that broker.
    pub fn brokers_of_topic(
        &mut self,
        topic: &str,
        target: &Target,
    ) -> Result<Vec<Broker>, Failure> {
        if target
            .broker
            .as_deref()
            .is_some_and(ringmq::client::admin::is_address)
        {
            return Ok(self.admin.brokers(target.select(), false)?);
        }
        let route = self.admin.route(topic)?;
        let mut found = Vec::new();
        for data in route.broker_datas {
            let fits = match (&target.broker, &target.cluster) {
                (Some(name), _) => *name == data.broker_name,
                (None, Some(cluster)) => *cluster == data.cluster,
                (None, None) => true,
            };
            let members = data.broker_addrs;
            let address = members.get(&MASTER).or_else(|| members.values().next());
            if let (true, Some(address)) = (fits, address) {
                found.push(Broker {
                    name: data.broker_name,
                    id: MASTER,
                    cluster: data.cluster,
                    address: address.clone(),
                });
            }
        }
        if found.is_empty() {
            let place = match (&target.broker, &target.cluster) {
                (Some(name), _) => format!("broker {name:?}"),
                (None, Some(cluster)) => format!("cluster {cluster:?}"),
                (None, None) => "any broker".to_owned(),
            };
            return Err(
                Failure::not_found(format!("topic {topic:?} is not on {place}")).hint(format!(
                    "`ringmq admin topicRoute -t {topic}` shows where it is"
                )),
            );
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The name of a broker that may have been given by address.
    ///
    /// # Errors
    /// No nameserver knows it.
    pub fn broker_name(&mut self, broker: &Broker) -> Result<String, Failure> {
        if broker.name != broker.address {
            return Ok(broker.name.clone());
        }
        let info = self.admin.cluster_info()?;
        let mut brokers = info.broker_addr_table.into_iter();
        let found = brokers.find(|(_, data)| {
            let mut addresses = data.broker_addrs.values();
            addresses.any(|known| is_same_place(known, &broker.address))
        });
        found.map(|(name, _)| name).ok_or_else(|| {
            Failure::not_found(format!(
                "no nameserver knows a broker at {}",
                broker.address
            ))
        })
    }

    /// Lets only those be asked who are brokers by what nameservers say, of the cluster or of a
    /// topic.
    ///
    /// # Errors
    /// Nobody knows the address, or no nameserver answers.
    pub fn check_known(&mut self, address: &str, topic: Option<&str>) -> Result<(), Failure> {
        let info = self.admin.cluster_info()?;
        let brokers = info.broker_addr_table.into_values();
        let mut known: Vec<String> = brokers
            .flat_map(|broker| broker.broker_addrs.into_values())
            .collect();
        if let Some(topic) = topic
            && let Ok(route) = self.admin.route(topic)
        {
            let brokers = route.broker_datas.into_iter();
            known.extend(brokers.flat_map(|broker| broker.broker_addrs.into_values()));
        }
        match known.iter().any(|known| is_same_place(known, address)) {
            true => Ok(()),
            false => Err(Failure::not_found(format!(
                "{address} is no broker that the nameserver knows, and is not asked"
            ))
            .hint("`ringmq admin clusterList` shows the brokers")),
        }
    }

    /// The brokers that a group has members or offsets on: those of its retry topic, or all masters
    /// where it has none.
    ///
    /// # Errors
    /// No nameserver answers.
    pub fn brokers_of_group(&mut self, group: &str) -> Result<Vec<Broker>, Failure> {
        match self.brokers_of_topic(&names::retry_topic(group), &Target::default()) {
            Err(failure) if failure.code == crate::cli::show::exit::NOT_FOUND => Ok(self
                .admin
                .brokers(ringmq::client::admin::Select::All, true)?),
            other => other,
        }
    }

    /// Adds the nearest name to what was not found.
    pub fn explain(&mut self, failure: Failure) -> Failure {
        let Some(rest) = failure.message.strip_prefix("there is no ") else {
            return failure;
        };
        let Some((what, name)) = rest.split_once(' ') else {
            return failure;
        };
        let names = match what {
            "topic" => self.admin.topic_list(),
            "cluster" | "broker" => self.admin.cluster_info().map(|info| match what {
                "cluster" => info.cluster_addr_table.into_keys().collect(),
                _ => info.broker_addr_table.into_keys().collect(),
            }),
            _ => Err(AdminFault::NoNameserver.into()),
        };
        match nearest(name.trim_matches('"'), names.unwrap_or_default()) {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None => failure,
        }
    }
}

/// Whether two addresses are the same host and port; a broker may be registered by name.
fn is_same_place(one: &str, other: &str) -> bool {
    one == other || matches!((resolve(one), resolve(other)), (Ok(one), Ok(other)) if one == other)
}

/// What a broker has of something, `None` where it says with the code `absent` that it has nothing of
/// it. One that cannot be asked for a single thing is asked for `all`. Anything else is no answer.
pub(super) fn known<T>(
    asked: Result<T, AdminError>,
    absent: i32,
    all: impl FnOnce() -> Result<Option<T>, AdminError>,
) -> Result<Option<T>, AdminError> {
    match asked {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == Some(absent) => Ok(None),
        Err(error) if error.code() == Some(response::REQUEST_CODE_NOT_SUPPORTED) => all(),
        Err(error) => Err(error),
    }
}

/// Changes a setting, unless nothing is said of it.
pub(super) fn set<T: Copy>(place: &mut T, value: Option<T>) {
    *place = value.unwrap_or(*place);
}

/// The names of brokers, as a sentence has them.
pub(super) fn brokers_text(brokers: &[Broker]) -> String {
    let names: Vec<&str> = brokers.iter().map(|broker| broker.name.as_str()).collect();
    names.join(", ")
}

/// Longest file of topics or groups, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a file of JSON.
///
/// # Errors
/// It cannot be read, is too long, or is no JSON of that kind.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| bad(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    json::parse(&bytes).map_err(|error| bad(error.to_string()))
}

/// The name that is most like the one that was meant, if one is like it.
fn nearest(wanted: &str, names: Vec<String>) -> Option<String> {
    let lower = wanted.to_lowercase();
    let near = names.into_iter().map(|name| {
        let same = strsim::jaro_winkler(&name.to_lowercase(), &lower);
        (name, same)
    });
    near.filter(|(_, same)| *same > 0.85)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_nearest_name_is_offered_where_one_is_near() {
        let names = || vec!["Orders".to_owned(), "Payments".to_owned()];
        assert_eq!(nearest("orders", names()).as_deref(), Some("Orders"));
        assert_eq!(nearest("Paymnets", names()).as_deref(), Some("Payments"));
        assert_eq!(nearest("Invoices", names()), None);
    }

    #[test]
    fn places_are_compared_by_host_and_port() {
        assert!(is_same_place("127.0.0.1:10911", "127.0.0.1:10911"));
        assert!(is_same_place("localhost:10911", "127.0.0.1:10911"));
        assert!(!is_same_place("127.0.0.1:10912", "127.0.0.1:10911"));
        assert!(!is_same_place("127.0.0.2:10911", "127.0.0.1:10911"));
        assert!(!is_same_place("a b:1", "c d:1"));
    }

    #[test]
    fn nobody_is_asked_where_nobody_can_answer() {
        // Standard input of a test is no terminal, or the test runner's own.
        let context = Context {
            admin: Admin::new("", Duration::from_secs(1)).unwrap(),
            yes: true,
        };
        assert_eq!(context.confirm("delete all"), Ok(()));
    }
}
