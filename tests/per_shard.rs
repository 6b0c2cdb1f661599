//! Every shard as a broker of its own (`routeMode=perShard`), as clients and tools see it.

mod common;

#[path = "per_shard/cluster.rs"]
mod cluster;
#[path = "per_shard/messages.rs"]
mod messages;
#[path = "per_shard/settings.rs"]
mod settings;
#[path = "per_shard/store.rs"]
mod store;

use std::collections::BTreeMap;

use common::Client;
use ringmq::wire::command::Request;

/// What a nameserver answers about a topic: its queues by broker, and their addresses.
fn route(nameserver: &mut Client, topic: &str) -> BTreeMap<String, (String, i64)> {
    let reply = nameserver.call(Request::new(105).with("topic", topic));
    if reply.code == 17 {
        return BTreeMap::new();
    }
    let route = reply.expect(0).json();
    let queues = route["queueDatas"].as_array().expect("queues");
    let brokers = route["brokerDatas"].as_array().expect("brokers");
    assert_eq!(queues.len(), brokers.len());
    let broker = |queue: &serde_json::Value| {
        let name = queue["brokerName"].as_str().expect("a name").to_owned();
        let of_name = |broker: &&serde_json::Value| broker["brokerName"] == queue["brokerName"];
        let broker = brokers.iter().find(of_name).expect("its broker");
        let address = broker["brokerAddrs"]["0"].as_str().expect("an address");
        let count = queue["readQueueNums"].as_i64().expect("a number");
        assert_eq!(queue["writeQueueNums"].as_i64(), Some(count));
        (name, (address.to_owned(), count))
    };
    queues.iter().map(broker).collect()
}

/// Names of the brokers that a nameserver knows, with their addresses.
fn brokers(nameserver: &mut Client) -> BTreeMap<String, String> {
    let cluster = nameserver.call(Request::new(106)).expect(0).json();
    let table = cluster["brokerAddrTable"].as_object().expect("a table");
    let broker = |(name, broker): (&String, &serde_json::Value)| {
        let address = broker["brokerAddrs"]["0"].as_str().expect("an address");
        (name.clone(), address.to_owned())
    };
    table.iter().map(broker).collect()
}

/// A figure of a broker's runtime info.
fn figure(client: &mut Client, name: &str) -> u64 {
    let info = client.call(Request::new(28)).expect(0).json();
    let value = info["table"][name].as_str();
    let value = value.unwrap_or_else(|| panic!("no {name} in {info}"));
    value.parse().expect("a number")
}
