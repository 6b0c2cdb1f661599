//! Brokers come, change and go (`RouteInfoManager.registerBroker`).

use crate::wire::body::register::RegisterBrokerBody;
use crate::wire::body::topic::DataVersion;
use crate::wire::command::{Request, Response};

use super::liveness::{BROKERS_MAX, EXPIRY_MS_DEFAULT, Key, Live};
use super::routes::{Apply, Forget, MASTER_ID, Member, TOPICS_MAX, topic_name};
use super::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX, Nameserver, TOPIC_BYTES_MAX, check_name, refusal};

/// Most queues of one topic on one broker. Clients keep state for every queue.
const QUEUES_MAX: i32 = 65_536;

/// Ext field with the zone of a broker.
const ZONE_NAME: &str = "__ZONE_NAME";

/// A checked registration.
pub(super) struct Registration {
    key: Key,
    cluster: String,
    id: i64,
    ha_addr: String,
    timeout_ms: u64,
    /// Whether a slave may stand in for the master; brokers before 5.0 do not say.
    acting_master: Option<bool>,
    zone: Option<String>,
    body: RegisterBrokerBody,
}

impl Registration {
    /// Reads and checks the request.
    ///
    /// # Errors
    /// The answer, which says what is wrong.
    pub fn read(request: &Request) -> Result<Registration, Response> {
        let key = broker_key(request)?;
        let cluster = request.str("clusterName")?;
        check_name("clusterName", cluster, NAME_BYTES_MAX)?;
        let ha_addr = request.str("haServerAddr")?;
        if !ha_addr.is_empty() {
            check_name("haServerAddr", ha_addr, ADDRESS_BYTES_MAX)?;
        }
        let zone = request.get(ZONE_NAME).filter(|zone| !zone.is_empty());
        if let Some(zone) = zone {
            check_name("zone", zone, NAME_BYTES_MAX)?;
        }
        let id = request.int("brokerId")?;
        if id < 0 {
            return Err(refusal(format!("brokerId {id} is negative")));
        }
        let timeout_ms = request.int_or("heartbeatTimeoutMillis", EXPIRY_MS_DEFAULT)?;
        if timeout_ms == 0 {
            return Err(refusal("heartbeatTimeoutMillis is 0"));
        }
        let acting_master = match request.get("enableActingMaster") {
            None => None,
            Some(_) => Some(request.bool_or("enableActingMaster", false)?),
        };
        check_sum(request)?;
        let compressed = request.bool_or("compressed", false)?;
        let body = RegisterBrokerBody::decode(&request.body, compressed, request.fixed.version)
            .map_err(|error| refusal(error.to_string()))?;
        check_topics(&body)?;
        Ok(Registration {
            cluster: cluster.to_owned(),
            id,
            ha_addr: ha_addr.to_owned(),
            timeout_ms,
            acting_master,
            zone: zone.map(str::to_owned),
            body,
            key,
        })
    }

    fn version(&self) -> DataVersion {
        self.body.topic_config_serialize_wrapper.data_version
    }

    fn topic_count(&self) -> usize {
        let wrapper = &self.body.topic_config_serialize_wrapper;
        wrapper.topic_config_table.len()
    }

    /// Whether it is the broker's table (or the first part of it) and not a
    /// change to it: every broker has a topic of its own name from the start.
    fn is_full(&self) -> bool {
        let wrapper = &self.body.topic_config_serialize_wrapper;
        self.topic_count() > 1 && wrapper.topic_config_table.contains_key(&self.key.broker)
    }
}

/// The broker that a request is about.
pub(super) fn broker_key(request: &Request) -> Result<Key, Response> {
    let broker = request.str("brokerName")?;
    check_name("brokerName", broker, NAME_BYTES_MAX)?;
    let addr = request.str("brokerAddr")?;
    check_name("brokerAddr", addr, ADDRESS_BYTES_MAX)?;
    // The Go client splits the address map at commas, as text.
    if !addr
        .bytes()
        .all(|b| b.is_ascii_graphic() && !b"\",\\{}".contains(&b))
    {
        return Err(refusal("brokerAddr is not host:port"));
    }
    Ok(Key::new(broker, addr))
}

fn check_sum(request: &Request) -> Result<(), Response> {
    let expected: i32 = request.int_or("bodyCrc32", 0)?;
    let actual = (crc32fast::hash(&request.body) & 0x7fff_ffff) as i32;
    if expected != 0 && expected != actual {
        return Err(refusal(format!(
            "bodyCrc32 is {expected}, the body has {actual}"
        )));
    }
    Ok(())
}

fn check_topics(body: &RegisterBrokerBody) -> Result<(), Response> {
    let wrapper = &body.topic_config_serialize_wrapper;
    for (key, config) in &wrapper.topic_config_table {
        check_name("topic name", topic_name(key, config), TOPIC_BYTES_MAX)?;
        check_queues(config.read_queue_nums, config.write_queue_nums)?;
    }
    Ok(())
}

/// Accepts the numbers of queues of one topic on one broker.
pub(super) fn check_queues(read: i32, write: i32) -> Result<(), Response> {
    for queues in [read, write] {
        if !(0..=QUEUES_MAX).contains(&queues) {
            return Err(refusal(format!(
                "a topic with {queues} queues, the limit is {QUEUES_MAX}"
            )));
        }
    }
    Ok(())
}

/// What a slave learns about its master.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MasterInfo {
    pub ha_addr: Option<String>,
    pub addr: Option<String>,
}

impl Nameserver {
    /// Takes a registration into the tables, or leaves them as they are where it
    /// is of a process that another has taken over from; that is no error.
    ///
    /// # Errors
    /// The answer, where the broker has to do something about it.
    pub(super) fn register(
        &mut self,
        conn: u64,
        registration: &Registration,
        now_ms: u64,
    ) -> Result<MasterInfo, Response> {
        let Registration { key, id, .. } = registration;
        let version = registration.version();
        let conn_age = self.liveness.age(conn);
        let known = self.liveness.get(key).cloned();
        if let Some(known) = &known
            && conn_age < known.conn_age
            && version.is_older_than(&known.version)
        {
            tracing::warn!(
                broker = key.broker,
                addr = key.addr,
                "registration of an older process ignored"
            );
            return Ok(MasterInfo::default());
        }
        if self.is_taken_by_newer(registration) {
            self.remove_broker(key, "its id is taken by an address of a newer epoch");
            return Ok(MasterInfo::default());
        }
        self.check_room(registration)?;

        let new = self.routes.address(&key.broker, *id).is_none();
        if new && registration.topic_count() == 1 {
            return Err(refusal(format!(
                "broker {} with id {id} is not registered: all its topics have to come before single ones",
                key.broker
            )));
        }
        if *id == MASTER_ID {
            self.warn_of_another_master(key);
        }
        self.routes.put_member(&Member {
            cluster: &registration.cluster,
            broker: &key.broker,
            id: *id,
            addr: &key.addr,
            acting_master: registration.acting_master.unwrap_or(false),
            zone: registration.zone.as_deref(),
        });
        let is_master = *id == MASTER_ID;
        let is_acting = !is_master
            && registration.acting_master.is_some()
            && self.routes.least_id(&key.broker) == Some(*id);
        if is_master || is_acting {
            let new_connection = known
                .as_ref()
                .is_none_or(|known| known.registered_on != conn);
            let apply = Apply {
                changed: new || known.as_ref().is_none_or(|known| known.version != version),
                read_only: is_acting && registration.acting_master == Some(true),
                forget: self.forget(registration, new_connection),
            };
            let listed = &registration.body.topic_config_serialize_wrapper;
            self.routes.apply(&key.broker, listed, apply);
        }
        if known.is_none() {
            let topics = registration.topic_count();
            tracing::info!(
                broker = key.broker,
                addr = key.addr,
                id,
                topics,
                "broker registered"
            );
        }
        self.liveness.put(
            key.clone(),
            Live {
                id: *id,
                conn,
                conn_age,
                registered_on: conn,
                last_ms: now_ms,
                timeout_ms: registration.timeout_ms,
                version,
                ha_addr: registration.ha_addr.clone(),
            },
        );
        Ok(self.master_info(&key.broker, *id))
    }

    /// What a restarted process does not list it no longer has. One that runs on
    /// may send its table in parts.
    fn forget(&self, registration: &Registration, new_connection: bool) -> Forget {
        let switches = self.config.switches();
        if !registration.is_full() {
            Forget::None
        } else if new_connection || switches.delete_topic_with_broker_registration {
            Forget::NotListed
        } else {
            Forget::NotListedLately
        }
    }

    /// Whether another address with a higher epoch has the id.
    fn is_taken_by_newer(&self, registration: &Registration) -> bool {
        let broker = &registration.key.broker;
        let Some(addr) = self.routes.address(broker, registration.id) else {
            return false;
        };
        let holder = self.liveness.get(&Key::new(broker, addr));
        addr != registration.key.addr
            && holder.is_some_and(|holder| {
                holder.version.state_version > registration.version().state_version
            })
    }

    fn check_room(&self, registration: &Registration) -> Result<(), Response> {
        let is_known = self.liveness.get(&registration.key).is_some();
        if !is_known && self.liveness.len() >= BROKERS_MAX {
            return Err(refusal(format!(
                "{BROKERS_MAX} brokers, the limit, are registered"
            )));
        }
        let table = &registration
            .body
            .topic_config_serialize_wrapper
            .topic_config_table;
        if self.routes.topic_count() + table.len() > TOPICS_MAX {
            let names = table.iter().map(|(key, config)| topic_name(key, config));
            let count = self.routes.count_with(names);
            if count > TOPICS_MAX {
                return Err(refusal(format!(
                    "there would be {count} topics, the limit is {TOPICS_MAX}"
                )));
            }
        }
        Ok(())
    }

    fn master_info(&self, broker: &str, id: i64) -> MasterInfo {
        let addr = self
            .routes
            .address(broker, MASTER_ID)
            .filter(|_| id != MASTER_ID);
        let master = addr.and_then(|addr| self.liveness.get(&Key::new(broker, addr)));
        MasterInfo {
            ha_addr: master.map(|master| master.ha_addr.clone()),
            addr: master.and(addr).map(str::to_owned),
        }
    }

    /// Removes a broker at its own request, unless the request is older than the
    /// registration that is in force.
    pub(super) fn unregister(&mut self, conn: u64, key: &Key, id: i64) {
        let conn_age = self.liveness.age(conn);
        let known = self.liveness.get(key);
        if known.is_some_and(|known| known.id == id && known.conn_age <= conn_age) {
            self.remove_broker(key, "it unregistered");
        }
    }
}
