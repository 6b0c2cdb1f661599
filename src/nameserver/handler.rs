//! Requests to answers, one small function a request code.

use std::net::SocketAddr;

use crate::wire::body::json;
use crate::wire::body::route::{BrokerMemberGroupBody, TopicList, TopicRouteData};
use crate::wire::body::topic::{DataVersion, perm};
use crate::wire::codes::{request as code, response};
use crate::wire::command::{Request, Response};
use crate::wire::frame::FRAME_BYTES_MAX;

use super::config::ConfigError;
use super::kv::ORDER_TOPIC_CONFIG;
use super::registration::{Registration, broker_key, check_queues};
use super::routes::TOPICS_MAX;
use super::{NAME_BYTES_MAX, Nameserver, TOPIC_BYTES_MAX, check_name, refusal, shown};

/// Longest body of an answer: a frame less room for its header.
const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;

/// Most brokers in one `REGISTER_TOPIC_IN_NAMESRV`.
const QUEUE_DATAS_MAX: usize = 1024;

/// Bits of `TopicSysFlag`.
const UNIT: i32 = 1;
const UNIT_SUB: i32 = 2;

type Answer = Result<Response, Response>;

impl Nameserver {
    /// Answers a request that came over connection `conn` from `peer`. Numbers of
    /// connections are the caller's; one must not be used again before
    /// [`Nameserver::connection_closed`] was called for it.
    pub fn handle(
        &mut self,
        conn: u64,
        peer: SocketAddr,
        request: &Request,
        now_ms: u64,
    ) -> Response {
        let answer = match request.fixed.code {
            code::GET_ROUTEINFO_BY_TOPIC => self.route(request, now_ms),
            code::REGISTER_BROKER => self.register_broker(conn, request, now_ms),
            code::UNREGISTER_BROKER => self.unregister_broker(conn, request),
            code::BROKER_HEARTBEAT => self.heartbeat(conn, request, now_ms),
            code::QUERY_DATA_VERSION => self.query_data_version(conn, request, now_ms),
            code::GET_BROKER_CLUSTER_INFO => list(json::encode(&self.routes.cluster_info())),
            code::GET_BROKER_MEMBER_GROUP => self.member_group(request),
            code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => self.all_topics(),
            code::GET_TOPICS_BY_CLUSTER => self.topics_by_cluster(request),
            code::GET_SYSTEM_TOPIC_LIST_FROM_NS => self.system_topics(),
            code::GET_UNIT_TOPIC_LIST => self.topics_by_flag(|flag| flag & UNIT != 0),
            code::GET_HAS_UNIT_SUB_TOPIC_LIST => self.topics_by_flag(|flag| flag & UNIT_SUB != 0),
            code::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                self.topics_by_flag(|flag| flag & (UNIT | UNIT_SUB) == UNIT_SUB)
            }
            code::WIPE_WRITE_PERM_OF_BROKER => self.wipe_write_perm(request, peer),
            code::ADD_WRITE_PERM_OF_BROKER => self.add_write_perm(request, peer),
            code::DELETE_TOPIC_IN_NAMESRV => self.delete_topic(request, peer),
            code::REGISTER_TOPIC_IN_NAMESRV => self.register_topic(request),
            code::PUT_KV_CONFIG => self.put_kv(request),
            code::GET_KV_CONFIG => self.get_kv(request),
            code::DELETE_KV_CONFIG => self.delete_kv(request),
            code::GET_KVLIST_BY_NAMESPACE => self.list_kv(request),
            code::UPDATE_NAMESRV_CONFIG => self.update_config(request, peer),
            code::GET_NAMESRV_CONFIG => Ok(Response::body(self.config.text())),
            other => Ok(Response::not_supported(other)),
        };
        answer.unwrap_or_else(|refused| {
            if request.fixed.code == code::REGISTER_BROKER {
                let why = refused.remark.as_deref().unwrap_or_default();
                tracing::warn!(%peer, why, "registration refused");
            }
            refused
        })
    }

    fn route(&mut self, request: &Request, now_ms: u64) -> Answer {
        let topic = request.str("topic")?;
        let switches = self.config.switches();
        if switches.need_wait_for_service
            && now_ms < self.started_ms.saturating_add(switches.wait_ms_for_service)
        {
            return Err(refusal("the nameserver is still gathering its brokers"));
        }
        match self.routes.answer(topic, switches, &self.kv) {
            Some(answer) => Ok(Response::body(answer)),
            None => Err(Response::error(
                response::TOPIC_NOT_EXIST,
                format!("no route for topic {}", shown(topic)),
            )),
        }
    }

    fn register_broker(&mut self, conn: u64, request: &Request, now_ms: u64) -> Answer {
        let registration = Registration::read(request)?;
        let master = self.register(conn, &registration, now_ms)?;
        let mut answer = Response::ok();
        if let Some(addr) = master.ha_addr {
            answer = answer.with("haServerAddr", addr);
        }
        if let Some(addr) = master.addr {
            answer = answer.with("masterAddr", addr);
        }
        if self.config.switches().return_order_topic_config_to_broker {
            let table = self.kv.list(ORDER_TOPIC_CONFIG);
            let table = table.filter(|table| table.len() <= BODY_BYTES_MAX);
            answer.body = table.unwrap_or_default().into();
        }
        Ok(answer)
    }

    fn unregister_broker(&mut self, conn: u64, request: &Request) -> Answer {
        let key = broker_key(request)?;
        self.unregister(conn, &key, request.int("brokerId")?);
        Ok(Response::ok())
    }

    fn heartbeat(&mut self, conn: u64, request: &Request, now_ms: u64) -> Answer {
        self.liveness.touch(&broker_key(request)?, conn, now_ms);
        Ok(Response::ok())
    }

    fn query_data_version(&mut self, conn: u64, request: &Request, now_ms: u64) -> Answer {
        let key = broker_key(request)?;
        let theirs: DataVersion = json::parse(&request.body)
            .map_err(|error| refusal(format!("data version: {error}")))?;
        self.liveness.touch(&key, conn, now_ms);
        let ours = self.liveness.get(&key).map(|live| live.version);
        let answer = Response::ok().with("changed", ours != Some(theirs));
        Ok(match ours {
            None => answer,
            Some(ours) => Response {
                body: json::encode(&ours).into(),
                ..answer
            },
        })
    }

    fn member_group(&self, request: &Request) -> Answer {
        let cluster = request.str("clusterName")?;
        let broker = request.str("brokerName")?;
        check_name("clusterName", cluster, NAME_BYTES_MAX)?;
        check_name("brokerName", broker, NAME_BYTES_MAX)?;
        Ok(Response::body(json::encode(&BrokerMemberGroupBody {
            broker_member_group: self.routes.member_group(cluster, broker),
        })))
    }

    fn all_topics(&self) -> Answer {
        if !self.config.switches().enable_all_topic_list {
            return Err(refusal("enableAllTopicList is false"));
        }
        list(TopicList::encode(self.routes.topics(), None))
    }

    fn check_lists_enabled(&self) -> Result<(), Response> {
        if !self.config.switches().enable_topic_list {
            return Err(refusal("enableTopicList is false"));
        }
        Ok(())
    }

    fn topics_by_cluster(&self, request: &Request) -> Answer {
        self.check_lists_enabled()?;
        let topics = self.routes.topics_of(request.str("cluster")?);
        list(TopicList::encode(topics, None))
    }

    fn topics_by_flag(&self, fits: impl Fn(i32) -> bool) -> Answer {
        self.check_lists_enabled()?;
        list(TopicList::encode(self.routes.topics_by_flag(fits), None))
    }

    /// Names that are topics on every broker: those of clusters and brokers.
    fn system_topics(&self) -> Answer {
        let info = self.routes.cluster_info();
        let names = info.cluster_addr_table.iter();
        let names = names
            .flat_map(|(cluster, brokers)| std::iter::once(cluster).chain(brokers))
            .map(String::as_str);
        let brokers = &mut info.broker_addr_table.values();
        let addr = brokers.find_map(|broker| broker.broker_addrs.values().next());
        list(TopicList::encode(names, addr.map(String::as_str)))
    }

    fn wipe_write_perm(&mut self, request: &Request, peer: SocketAddr) -> Answer {
        let broker = request.str("brokerName")?;
        let count = self.routes.set_perm(broker, |perm| perm & !perm::WRITE);
        tracing::info!(%peer, broker = shown(broker), count, "write permission wiped");
        Ok(Response::ok().with("wipeTopicCount", count))
    }

    fn add_write_perm(&mut self, request: &Request, peer: SocketAddr) -> Answer {
        let broker = request.str("brokerName")?;
        let count = self.routes.set_perm(broker, |_| perm::READ | perm::WRITE);
        tracing::info!(%peer, broker = shown(broker), count, "write permission added");
        Ok(Response::ok().with("addTopicCount", count))
    }

    fn delete_topic(&mut self, request: &Request, peer: SocketAddr) -> Answer {
        let topic = request.str("topic")?;
        let cluster = request.get("clusterName").filter(|name| !name.is_empty());
        self.routes.delete_topic(topic, cluster);
        tracing::info!(%peer, topic = shown(topic), "topic deleted");
        Ok(Response::ok())
    }

    fn register_topic(&mut self, request: &Request) -> Answer {
        let topic = request.str("topic")?;
        check_name("topic name", topic, TOPIC_BYTES_MAX)?;
        let data: TopicRouteData =
            json::parse(&request.body).map_err(|error| refusal(format!("route: {error}")))?;
        let queues = data.queue_datas;
        if queues.len() > QUEUE_DATAS_MAX {
            return Err(refusal(format!("more than {QUEUE_DATAS_MAX} brokers")));
        }
        if self.routes.count_with(std::iter::once(topic)) > TOPICS_MAX {
            return Err(refusal(format!(
                "{TOPICS_MAX} topics, the limit, are registered"
            )));
        }
        for q in &queues {
            check_queues(q.read_queue_nums, q.write_queue_nums)?;
        }
        let unknown = queues
            .iter()
            .find(|q| !self.routes.knows_broker(&q.broker_name));
        if let Some(unknown) = unknown {
            let broker = shown(&unknown.broker_name);
            return Err(refusal(format!("broker {broker} is not registered")));
        }
        self.routes.put_topic(topic, &queues);
        Ok(Response::ok())
    }

    fn put_kv(&mut self, request: &Request) -> Answer {
        let (namespace, key) = (request.str("namespace")?, request.str("key")?);
        self.kv.put(namespace, key, request.str("value")?)?;
        self.order_changed(namespace);
        Ok(Response::ok())
    }

    fn get_kv(&self, request: &Request) -> Answer {
        let (namespace, key) = (request.str("namespace")?, request.str("key")?);
        match self.kv.get(namespace, key) {
            Some(value) => Ok(Response::ok().with("value", value)),
            None => Err(not_found(format!(
                "no key {} in namespace {}",
                shown(key),
                shown(namespace)
            ))),
        }
    }

    fn delete_kv(&mut self, request: &Request) -> Answer {
        let (namespace, key) = (request.str("namespace")?, request.str("key")?);
        self.kv.delete(namespace, key);
        self.order_changed(namespace);
        Ok(Response::ok())
    }

    fn list_kv(&self, request: &Request) -> Answer {
        let namespace = request.str("namespace")?;
        match self.kv.list(namespace) {
            Some(body) => list(body),
            None => Err(not_found(format!("no namespace {}", shown(namespace)))),
        }
    }

    fn order_changed(&mut self, namespace: &str) {
        if namespace == ORDER_TOPIC_CONFIG {
            self.routes.forget_answers();
        }
    }

    fn update_config(&mut self, request: &Request, peer: SocketAddr) -> Answer {
        self.config.update(&request.body).map_err(|error| {
            let code = match error {
                ConfigError::Fixed(_) => response::NO_PERMISSION,
                _ => response::SYSTEM_ERROR,
            };
            Response::error(code, error.to_string())
        })?;
        self.config_dirty = true;
        self.routes.forget_answers();
        tracing::info!(%peer, "settings changed");
        Ok(Response::ok())
    }
}

fn not_found(remark: String) -> Response {
    Response::error(response::QUERY_NOT_FOUND, remark)
}

/// An answer with a list, unless no client would accept a frame that long.
fn list(body: Vec<u8>) -> Answer {
    if body.len() > BODY_BYTES_MAX {
        return Err(refusal(format!(
            "the list has {} bytes, the limit is {BODY_BYTES_MAX}",
            body.len()
        )));
    }
    Ok(Response::body(body))
}
