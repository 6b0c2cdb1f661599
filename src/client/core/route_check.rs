//! What a nameserver says of a topic, before anything is believed.
//!
//! A bad entry is left out and named in the log; the others count. Where nothing is left the
//! answer is an error that names the first fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::settings::parse_address;
use crate::wire::body::json;
use crate::wire::body::route::TopicRouteData;

/// Largest answer that is read, bytes.
pub(super) const ROUTE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most brokers of a topic.
pub(super) const BROKERS_MAX: usize = 4_096;
/// Most queues of a topic on one broker. RocketMQ's own largest topic has 1,024.
pub(super) const QUEUES_MAX: i32 = 9_999;
/// Most queues of a topic on all brokers together.
pub(super) const QUEUES_OF_TOPIC_MAX: usize = 100_000;
/// Most members of a broker group.
const MEMBERS_MAX: usize = 64;
/// Longest name of a broker, bytes.
const NAME_BYTES_MAX: usize = 255;

/// A route that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Brokers by name.
    pub brokers: Vec<Broker>,
    /// Queues, by name of their broker.
    pub queues: Vec<Queues>,
    /// Of an ordered topic: brokers and how many queues each has to be written, in this order,
    /// in place of those of `queues`. They stay the same while a broker is away.
    pub ordered: Vec<(Arc<str>, i32)>,
}

/// A broker group with at least one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broker {
    pub name: Arc<str>,
    pub addresses: BTreeMap<i64, Arc<str>>,
}

impl Broker {
    pub fn has_master(&self) -> bool {
        self.addresses.contains_key(&0)
    }
}

/// The queues of the topic on one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queues {
    /// Index of the broker.
    pub broker: usize,
    pub perm: i32,
    pub read: i32,
    pub write: i32,
}

impl Checked {
    /// Caps the queues to what a topic made from this template gets.
    pub fn cap(&mut self, queue_nums: u32) {
        for queues in &mut self.queues {
            let capped = queues.read.min(queue_nums as i32);
            (queues.read, queues.write) = (capped, capped);
        }
        for (_, queues) in &mut self.ordered {
            *queues = (*queues).min(queue_nums as i32);
        }
    }
}

/// Checks the body of an answer to `GET_ROUTEINFO_BY_TOPIC`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(body: &[u8]) -> Result<Checked, String> {
    if body.len() > ROUTE_BYTES_MAX {
        let len = body.len();
        return Err(format!("{len} bytes, more than {ROUTE_BYTES_MAX}"));
    }
    let route: TopicRouteData = json::parse(body).map_err(|error| format!("no JSON: {error}"))?;
    if route.broker_datas.len() > BROKERS_MAX || route.queue_datas.len() > BROKERS_MAX {
        let (brokers, queues) = (route.broker_datas.len(), route.queue_datas.len());
        return Err(format!(
            "{brokers} brokers and {queues} with queues, more than {BROKERS_MAX}"
        ));
    }
    let mut faults = Faults::default();
    let mut brokers: BTreeMap<&str, BTreeMap<i64, Arc<str>>> = BTreeMap::new();
    for broker in &route.broker_datas {
        let name = &broker.broker_name;
        if let Err(what) = check_name(name) {
            faults.note(format!("broker name {:?} {what}", short(name)));
            continue;
        }
        if broker.broker_addrs.len() > MEMBERS_MAX {
            let members = broker.broker_addrs.len();
            faults.note(format!("broker {name} has {members} members"));
            continue;
        }
        let mut addresses = BTreeMap::new();
        for (&id, address) in &broker.broker_addrs {
            match parse_address(address) {
                Ok(_) if id >= 0 => {
                    addresses.insert(id, Arc::from(address.as_str()));
                }
                Ok(_) => faults.note(format!("broker {name} has a member with id {id}")),
                Err(what) => {
                    let address = short(address);
                    faults.note(format!("broker {name}: address {address:?} {what}"));
                }
            }
        }
        if addresses.is_empty() {
            faults.note(format!("broker {name} has no address"));
            continue;
        }
        brokers.insert(name, addresses);
    }
    let mut queues = BTreeMap::new();
    let mut sum = 0;
    for data in &route.queue_datas {
        let name = data.broker_name.as_str();
        // Queues of a broker that has gone are no fault: it is on its way out of the route.
        let Some(broker) = brokers.keys().position(|&known| known == name) else {
            continue;
        };
        let (read, write) = (data.read_queue_nums, data.write_queue_nums);
        if !(0..=QUEUES_MAX).contains(&read) || !(0..=QUEUES_MAX).contains(&write) {
            faults.note(format!(
                "broker {name} has {read} queues to read and {write} to write, \
                 not 0 to {QUEUES_MAX}"
            ));
            continue;
        }
        sum += read.max(write) as usize;
        if sum > QUEUES_OF_TOPIC_MAX {
            faults.note(format!("more than {QUEUES_OF_TOPIC_MAX} queues"));
            break;
        }
        let perm = data.perm;
        let of_broker = Queues {
            broker,
            perm,
            read,
            write,
        };
        queues.insert(name, of_broker);
    }
    let order = route.order_topic_conf.as_deref().unwrap_or_default();
    let ordered = check_order(order, &mut faults);
    if let (true, Some(first)) = (queues.is_empty(), faults.first) {
        return Err(first);
    }
    Ok(Checked {
        ordered,
        queues: queues.into_values().collect(),
        brokers: brokers
            .into_iter()
            .map(|(name, addresses)| Broker {
                name: name.into(),
                addresses,
            })
            .collect(),
    })
}

/// The queues of an ordered topic, `broker-a:4;broker-b:2`. What follows a second colon is
/// ignored, as in Java.
fn check_order(text: &str, faults: &mut Faults) -> Vec<(Arc<str>, i32)> {
    let mut ordered: Vec<(Arc<str>, i32)> = Vec::new();
    let mut sum = 0;
    for entry in text.split(';').filter(|entry| !entry.is_empty()) {
        let mut parts = entry.split(':');
        let name = parts.next().unwrap_or_default();
        let count: Option<i32> = parts.next().and_then(|count| count.parse().ok());
        let Some(count) = count.filter(|count| (0..=QUEUES_MAX).contains(count)) else {
            let entry = short(entry);
            faults.note(format!("order {entry:?} is not broker:0 to {QUEUES_MAX}"));
            continue;
        };
        if let Err(what) = check_name(name) {
            faults.note(format!("order: broker name {:?} {what}", short(name)));
            continue;
        }
        if ordered.iter().any(|(known, _)| **known == *name) {
            faults.note(format!("order: broker {name} is there twice"));
            continue;
        }
        sum += count as usize;
        if sum > QUEUES_OF_TOPIC_MAX || ordered.len() >= BROKERS_MAX {
            let what = format!("more than {QUEUES_OF_TOPIC_MAX} queues or {BROKERS_MAX} brokers");
            faults.note(format!("order: {what}"));
            break;
        }
        ordered.push((name.into(), count));
    }
    ordered
}

#[derive(Default)]
struct Faults {
    first: Option<String>,
}

impl Faults {
    fn note(&mut self, what: String) {
        if self.first.is_none() {
            tracing::warn!("a nameserver's route: {what}; left out");
            self.first = Some(what);
        }
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        return Err("is blank");
    }
    if name.len() > NAME_BYTES_MAX {
        return Err("is longer than 255 bytes");
    }
    if name.chars().any(char::is_control) {
        return Err("holds a control character");
    }
    Ok(())
}

/// What is shown of a text that may be very long.
fn short(text: &str) -> &str {
    let mut end = text.len().min(64);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(broker: &str, address: &str, queues: i64) -> Vec<u8> {
        serde_json::to_vec(&serde_json::json!({
            "brokerDatas": [{
                "brokerAddrs": {"0": address}, "brokerName": broker, "cluster": "c",
            }],
            "queueDatas": [{
                "brokerName": broker, "perm": 6, "readQueueNums": queues, "writeQueueNums": queues,
            }],
        }))
        .unwrap()
    }

    #[test]
    fn a_good_route_is_taken() {
        let good = check(&route("b", "10.0.0.1:10911", 8)).unwrap();
        assert_eq!((good.brokers.len(), good.queues[0].write), (1, 8));
        assert!(good.brokers[0].has_master());
        let mut capped = good.clone();
        capped.cap(4);
        assert_eq!((capped.queues[0].read, capped.queues[0].write), (4, 4));
    }

    #[test]
    fn a_nameserver_that_lies_is_named() {
        let fault = |body: &[u8]| check(body).unwrap_err();
        assert!(fault(&route("b", "h:0", 8)).contains("port 0"));
        assert!(fault(&route("b", "", 8)).contains("host:port"));
        assert!(fault(&route("b", "h\n:1", 8)).contains("\"h\\n:1\""));
        assert!(fault(&route("b", "h:1", 10_000)).contains("10000 queues"));
        assert!(fault(&route("b", "h:1", -1)).contains("-1 queues"));
        assert!(fault(&route("b", "h:1", i64::MAX)).contains("no JSON"));
        assert!(fault(&route("a\nb", "h:1", 8)).contains("control"));
        assert!(fault(&route("", "h:1", 8)).contains("blank"));
        assert!(fault(&route(&"x".repeat(300), "h:1", 8)).contains("255"));
        assert!(fault(b"garbage").contains("no JSON"));
        assert!(fault(b"").contains("no JSON"));
        assert!(fault(&vec![b' '; ROUTE_BYTES_MAX + 1]).contains("bytes, more than"));
        let none = br#"{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b"}],"queueDatas":[]}"#;
        assert!(fault(none).contains("no address"));
        // An empty route is none of these: nothing is wrong with it.
        assert_eq!(check(b"{}").unwrap(), Checked::default());
    }

    #[test]
    fn a_bad_entry_takes_no_other_with_it() {
        let body = br#"{"brokerDatas":[
            {"brokerAddrs":{"0":"h:1","1":"h:0"},"brokerName":"a"},
            {"brokerAddrs":{"0":"h:0"},"brokerName":"b"}],
          "queueDatas":[
            {"brokerName":"a","perm":6,"readQueueNums":2,"writeQueueNums":2},
            {"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":2},
            {"brokerName":"orphan","perm":6,"readQueueNums":2,"writeQueueNums":2}]}"#;
        let good = check(body).unwrap();
        assert_eq!((good.brokers.len(), good.queues.len()), (1, 1));
        assert_eq!(good.brokers[0].addresses.len(), 1);
    }

    #[test]
    fn an_order_is_taken_entry_by_entry() {
        let ordered = |order: &str| {
            let mut route: serde_json::Value =
                serde_json::from_slice(&route("b", "h:1", 3)).unwrap();
            route["orderTopicConf"] = order.into();
            let good = check(route.to_string().as_bytes()).unwrap();
            assert_eq!((good.brokers.len(), good.queues.len()), (1, 1));
            let ordered = good.ordered.into_iter();
            ordered
                .map(|(name, count)| format!("{name}:{count}"))
                .collect::<Vec<_>>()
        };
        assert!(ordered("").is_empty());
        assert_eq!(ordered("b:4;a:2"), ["b:4", "a:2"]);
        assert_eq!(ordered("b:4:6;;a:0;"), ["b:4", "a:0"]);
        let bad = "a;b:;c:-1;d:x;:4;e:10000;f:99999999999;g\n:1;b:2;b:3";
        assert_eq!(ordered(bad), ["b:2"]);
        let many: String = (0..20).map(|n| format!("b{n}:9000;")).collect();
        assert_eq!(ordered(&many).len(), 11, "100,000 queues at most");
    }

    #[test]
    fn the_queues_of_a_topic_are_bounded_together() {
        let brokers: Vec<_> = (0..20)
            .map(|n| {
                serde_json::json!({
                    "brokerAddrs": {"0": format!("h:{}", n + 1)}, "brokerName": format!("b{n}"),
                })
            })
            .collect();
        let queues: Vec<_> = (0..20)
            .map(|n| {
                serde_json::json!({
                    "brokerName": format!("b{n}"), "perm": 6,
                    "readQueueNums": 9_000, "writeQueueNums": 9_000,
                })
            })
            .collect();
        let body = serde_json::json!({"brokerDatas": brokers, "queueDatas": queues});
        let good = check(body.to_string().as_bytes()).unwrap();
        let sum: i32 = good.queues.iter().map(|queues| queues.write).sum();
        assert!(sum as usize <= QUEUES_OF_TOPIC_MAX && sum > 90_000, "{sum}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut body in prop::collection::vec(any::<u8>(), 0..200), at: usize, byte: u8) {
            let _ = check(&body);
            body = route("b", "h:1", 3);
            let at = at % body.len();
            body[at] = byte;
            if let Ok(good) = check(&body) {
                for broker in &good.brokers {
                    for address in broker.addresses.values() {
                        prop_assert!(parse_address(address).is_ok());
                    }
                }
            }
        }
    }
}
