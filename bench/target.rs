//! What is measured: a broker, or the brokers that a nameserver knows, and the topics there.

use ringmq::client::remote::{Remote, resolve};
use ringmq::wire::body::json;
use ringmq::wire::body::route::{ClusterInfo, TopicRouteData};
use ringmq::wire::codes::{request, response};
use ringmq::wire::command::Request;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long the route of a new topic may take to show up at the nameserver.
const ROUTE_WAIT: Duration = Duration::from_secs(40);

/// Number of a master among the members of a broker group.
const MASTER: i64 = 0;

/// Readable and writable.
const PERM_READ_WRITE: i32 = 6;

/// Where the load goes. One of `broker` and `nameserver` must be there.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// `host:port` of a broker.
    pub broker: Option<String>,
    /// `host:port` of a nameserver, or of several with `;` between them: the load goes to all
    /// brokers of the topic's route.
    pub nameserver: Option<String>,
    /// What it is called in the result; `None`: what it says of itself.
    pub name: Option<String>,
    /// Process of the broker; `None`: the one that listens at its port, if that is on this machine.
    pub server_pid: Option<u32>,
}

impl Target {
    /// A broker by its address.
    pub fn broker(address: impl ToString) -> Target {
        Target {
            broker: Some(address.to_string()),
            ..Target::default()
        }
    }
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its name, where a nameserver told it.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
}

/// One queue of all that the load is spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the topic.
    pub topic: u32,
    /// Index of the broker.
    pub broker: u32,
    /// Queue number.
    pub queue: u32,
}

/// The queues that the load is spread over.
#[derive(Clone, Debug)]
pub struct Route {
    /// The brokers.
    pub brokers: Vec<Broker>,
    /// Names of the topics.
    pub topics: Vec<String>,
    /// Queues of each topic on each broker.
    pub queues: u32,
    /// The queues, all of one topic's broker behind each other.
    pub places: Vec<Place>,
    /// The topics were made for this run.
    pub is_new: bool,
}

impl Route {
    /// Name of a place's topic.
    pub fn topic(&self, place: Place) -> &str {
        &self.topics[place.topic as usize]
    }

    /// Indices of the places of one broker, queues of a topic behind each other.
    pub fn places_of(&self, broker: usize) -> Vec<u32> {
        let all = self.places.iter().enumerate();
        all.filter(|(_, place)| place.broker as usize == broker)
            .map(|(index, _)| index as u32)
            .collect()
    }
}

/// What topics are wanted.
pub struct Wanted<'a> {
    /// The name that was given, if one was.
    pub topic: Option<&'a str>,
    /// A name for a new topic.
    pub fresh: &'a str,
    /// Number of topics.
    pub topics: u32,
    /// Queues of each.
    pub queues: u32,
}

/// Finds the brokers, makes the topics that are not there, and lists the queues.
///
/// # Errors
/// Text with the address that refused or did not answer.
pub fn prepare(target: &Target, wanted: &Wanted<'_>, timeout: Duration) -> Result<Route, String> {
    let mut nameserver = match &target.nameserver {
        Some(names) => Some(first_of(names, timeout)?),
        None => None,
    };
    let base = wanted.topic.unwrap_or(wanted.fresh);
    let topics: Vec<String> = match wanted.topics {
        0 | 1 => vec![base.to_owned()],
        count => (0..count)
            .map(|number| format!("{base}-{number}"))
            .collect(),
    };
    let brokers = match (&target.broker, &mut nameserver) {
        (Some(name), _) => vec![Broker {
            name: String::new(),
            address: resolve(name)?,
        }],
        (None, Some(nameserver)) => brokers_of(nameserver, &topics[0])?,
        (None, None) => return Err("neither a broker nor a nameserver is given".to_owned()),
    };
    for broker in &brokers {
        let mut remote = Remote::connect(broker.address, timeout)?;
        make_topics(&mut remote, &topics, wanted)?;
    }
    if let Some(nameserver) = &mut nameserver {
        await_routes(nameserver, &topics, brokers.len())?;
    }
    let mut places = Vec::new();
    for topic in 0..topics.len() as u32 {
        for broker in 0..brokers.len() as u32 {
            places.extend((0..wanted.queues).map(|queue| Place {
                topic,
                broker,
                queue,
            }));
        }
    }
    Ok(Route {
        brokers,
        topics,
        queues: wanted.queues,
        places,
        is_new: wanted.topic.is_none(),
    })
}

/// A connection to the first of some nameservers, `host:port;host:port`, that can be reached.
fn first_of(names: &str, timeout: Duration) -> Result<Remote, String> {
    let mut failed = String::new();
    for name in names.split(';').filter(|name| !name.trim().is_empty()) {
        let connected = resolve(name.trim()).map_err(String::from);
        match connected.and_then(|address| Ok(Remote::connect(address, timeout)?)) {
            Ok(remote) => return Ok(remote),
            Err(error) if failed.is_empty() => failed = error,
            Err(error) => failed = format!("{failed}; {error}"),
        }
    }
    Err(format!("no nameserver can be reached: {failed}"))
}

/// The masters that have the topic; where it has no route, all masters there are.
fn brokers_of(nameserver: &mut Remote, topic: &str) -> Result<Vec<Broker>, String> {
    let address = nameserver.address();
    let bad = |error: json::JsonError| format!("answer of {address}: {error}");
    let route = nameserver.call(route_of(topic))?;
    let members: Vec<(String, BTreeMap<i64, String>)> = if route.code == response::SUCCESS {
        let route: TopicRouteData = json::parse(&route.body).map_err(bad)?;
        let brokers = route.broker_datas.into_iter();
        brokers
            .map(|broker| (broker.broker_name, broker.broker_addrs))
            .collect()
    } else {
        let cluster = nameserver.expect(Request::new(request::GET_BROKER_CLUSTER_INFO))?;
        let cluster: ClusterInfo = json::parse(&cluster.body).map_err(bad)?;
        let brokers = cluster.broker_addr_table.into_iter();
        brokers
            .map(|(name, broker)| (name, broker.broker_addrs))
            .collect()
    };
    let mut brokers = Vec::new();
    for (name, addresses) in members {
        if let Some(address) = addresses.get(&MASTER) {
            let address = resolve(address)?;
            brokers.push(Broker { name, address });
        }
    }
    if brokers.is_empty() {
        return Err(format!("no broker is registered at {address}"));
    }
    Ok(brokers)
}

fn route_of(topic: &str) -> Request {
    Request::new(request::GET_ROUTEINFO_BY_TOPIC).with("topic", topic)
}

/// Makes the topics that are not there. Ones that are there must have enough queues.
fn make_topics(remote: &mut Remote, topics: &[String], wanted: &Wanted<'_>) -> Result<(), String> {
    let queues = i64::from(wanted.queues);
    let mut missing = Vec::new();
    for topic in topics {
        if wanted.topic.is_some() {
            let config = Request::new(request::GET_TOPIC_CONFIG).with("topic", topic);
            let answer = remote.call(config)?;
            if answer.code == response::SUCCESS {
                let has = queues_of(&answer.body).ok_or_else(|| {
                    format!(
                        "the settings of {topic} at {} have no queues",
                        remote.address()
                    )
                })?;
                if has < queues {
                    return Err(format!(
                        "{topic} has {has} queues at {}, and --queues asks for {queues}",
                        remote.address()
                    ));
                }
                continue;
            }
        }
        missing.push(
            Request::new(request::UPDATE_AND_CREATE_TOPIC)
                .with("topic", topic)
                .with("defaultTopic", "TBW102")
                .with("readQueueNums", queues)
                .with("writeQueueNums", queues)
                .with("perm", PERM_READ_WRITE)
                .with("topicFilterType", "SINGLE_TAG")
                .with("topicSysFlag", 0)
                .with("order", false),
        );
    }
    remote.expect_all(missing)?;
    Ok(())
}

/// Queues that can be both written and read, of a topic's settings as JSON.
fn queues_of(body: &[u8]) -> Option<i64> {
    let settings: serde_json::Value = json::parse(body).ok()?;
    let number = |name: &str| settings.get(name)?.as_i64();
    Some(number("readQueueNums")?.min(number("writeQueueNums")?))
}

/// Waits until clients would find the topics.
fn await_routes(nameserver: &mut Remote, topics: &[String], brokers: usize) -> Result<(), String> {
    let deadline = Instant::now() + ROUTE_WAIT;
    let address = nameserver.address();
    for topic in topics {
        loop {
            let answer = nameserver.call(route_of(topic))?;
            if answer.code == response::SUCCESS {
                let route: TopicRouteData = json::parse(&answer.body)
                    .map_err(|error| format!("answer of {address}: {error}"))?;
                if route.broker_datas.len() >= brokers {
                    break;
                }
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "{topic} has no route to all brokers at {address} after {ROUTE_WAIT:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Asks every queue for one of its bounds: GET_MAX_OFFSET or GET_MIN_OFFSET.
///
/// # Errors
/// Text with the address that refused or did not answer.
pub fn offsets(route: &Route, code: i32, timeout: Duration) -> Result<Vec<i64>, String> {
    let mut found = vec![0; route.places.len()];
    for (number, broker) in route.brokers.iter().enumerate() {
        let mut remote = Remote::connect(broker.address, timeout)?;
        let places = route.places_of(number);
        let ask = |&index: &u32| {
            let place = route.places[index as usize];
            Request::new(code)
                .with("topic", route.topic(place))
                .with("queueId", place.queue)
        };
        let answers = remote.expect_all(places.iter().map(ask).collect())?;
        for (index, answer) in places.into_iter().zip(answers) {
            let offset = answer.get("offset").and_then(|text| text.parse().ok());
            // -1 is what some brokers say of a queue that nothing was ever put into.
            let offset = offset.filter(|offset| (-1..i64::MAX).contains(offset));
            found[index as usize] = offset.map(|offset| offset.max(0)).ok_or_else(|| {
                format!(
                    "{} answered request {code} without an offset",
                    broker.address
                )
            })?;
        }
    }
    Ok(found)
}

/// Deletes the topics of a route. What cannot be deleted stays.
pub fn delete_topics(route: &Route, timeout: Duration) {
    for broker in &route.brokers {
        let Ok(mut remote) = Remote::connect(broker.address, timeout) else {
            continue;
        };
        for topic in &route.topics {
            let delete = Request::new(request::DELETE_TOPIC_IN_BROKER).with("topic", topic);
            if let Err(error) = remote.expect(delete) {
                tracing::warn!("{topic} stays: {error}");
            }
        }
    }
}

/// Figures that a broker tells of itself.
///
/// # Errors
/// As [`Remote::expect`].
pub fn runtime_info(remote: &mut Remote) -> Result<BTreeMap<String, String>, String> {
    let answer = remote.expect(Request::new(request::GET_BROKER_RUNTIME_INFO))?;
    let body: serde_json::Value = json::parse(&answer.body)
        .map_err(|error| format!("answer of {}: {error}", remote.address()))?;
    let table = body.get("table").and_then(|table| table.as_object());
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(table
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect())
}

/// What a broker says it is, by those figures.
pub fn product(info: &BTreeMap<String, String>) -> String {
    // Only RingMQ tells this.
    if info.contains_key("purgedUnreadTotal") {
        return "RingMQ".to_owned();
    }
    let version = info.get("brokerVersionDesc").map_or("", String::as_str);
    let version = version.trim_start_matches('V').replace('_', ".");
    format!("Apache RocketMQ {version}").trim_end().to_owned()
}
