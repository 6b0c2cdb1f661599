//! What a nameserver promises to brokers, clients and administrators, seen through its requests.

mod answers;
mod brokers;

use std::net::SocketAddr;

use super::*;
use crate::wire::body::json;
use crate::wire::body::register::RegisterBrokerBody;
use crate::wire::body::route::{
    BrokerMemberGroupBody, ClusterInfo, KVTable, QueueData, TopicList, TopicRouteData,
};
use crate::wire::body::topic::{DataVersion, TopicConfig};
use crate::wire::codes::request as code;
use crate::wire::command::Request;

/// A broker process as the nameserver sees it.
#[derive(Clone)]
struct Broker {
    name: &'static str,
    addr: &'static str,
    id: i64,
    topics: Vec<TopicConfig>,
    version: DataVersion,
    acting_master: Option<bool>,
}

fn broker(name: &'static str, addr: &'static str, topics: &[&str]) -> Broker {
    let topics = topics.iter().map(|name| TopicConfig::new(*name, 8, 6));
    Broker {
        name,
        addr,
        id: 0,
        topics: topics.collect(),
        version: DataVersion {
            counter: 1,
            state_version: 0,
            timestamp: 1,
        },
        acting_master: None,
    }
}

impl Broker {
    fn listing(&self, topics: &[&str]) -> Broker {
        let mut version = self.version;
        version.next(0);
        let topics = topics.iter().map(|name| TopicConfig::new(*name, 8, 6));
        Broker {
            topics: topics.collect(),
            version,
            ..self.clone()
        }
    }

    fn slave(&self, id: i64, addr: &'static str) -> Broker {
        Broker {
            id,
            addr,
            ..self.clone()
        }
    }

    fn body(&self) -> RegisterBrokerBody {
        let topics = self
            .topics
            .iter()
            .map(|t| (t.topic_name.clone(), t.clone()));
        RegisterBrokerBody::new(self.version, topics.collect())
    }

    fn request(&self, code: i32) -> Request {
        let mut request = Request::new(code)
            .with("brokerName", self.name)
            .with("brokerAddr", self.addr)
            .with("clusterName", "c")
            .with("haServerAddr", format!("ha-{}", self.addr))
            .with("brokerId", self.id);
        if let Some(acting) = self.acting_master {
            request = request.with("enableActingMaster", acting);
        }
        request
    }

    fn registration(&self) -> Request {
        let request = self.request(code::REGISTER_BROKER);
        request.with_body(self.body().encode())
    }
}

struct Bench {
    ns: Nameserver,
    now_ms: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            ns: Nameserver::new(Config::default(), 0),
            now_ms: 0,
        }
    }

    fn ask(&mut self, conn: u64, request: &Request) -> Response {
        let peer = SocketAddr::from(([127, 0, 0, 1], 9999));
        self.ns.handle(conn, peer, request, self.now_ms)
    }

    fn admin(&mut self, code: i32, ext: &[(&str, &str)]) -> Response {
        let request = ext
            .iter()
            .fold(Request::new(code), |r, (k, v)| r.with(k, v));
        self.ask(99, &request)
    }

    fn register(&mut self, conn: u64, broker: &Broker) -> Response {
        let answer = self.ask(conn, &broker.registration());
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        answer
    }

    fn route(&mut self, topic: &str) -> Option<TopicRouteData> {
        let answer = self.admin(code::GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)]);
        assert!([0, 17].contains(&answer.code));
        (answer.code == 0).then(|| json::parse(&answer.body).unwrap())
    }

    fn addrs(&mut self, topic: &str) -> Vec<String> {
        let brokers = self.route(topic).map(|route| route.broker_datas);
        let brokers = brokers.unwrap_or_default().into_iter();
        brokers.flat_map(|b| b.broker_addrs.into_values()).collect()
    }

    fn perm(&mut self, topic: &str) -> i32 {
        self.route(topic).unwrap().queue_datas[0].perm
    }

    fn topics(&mut self, code: i32, ext: &[(&str, &str)]) -> Vec<String> {
        let answer = self.admin(code, ext);
        json::parse::<TopicList>(&answer.body).unwrap().topic_list
    }

    fn all_topics(&mut self) -> Vec<String> {
        self.topics(code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &[])
    }
}
