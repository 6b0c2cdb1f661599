//! Requests of clients about themselves, and of operators about clients:
//! 34, 35, 38, 41, 42, 46, 203, 204, 328, 345.
//!
//! Source of the rules: `ClientManageProcessor`, `ConsumerManageProcessor`,
//! `AdminBrokerProcessor`.

use std::collections::BTreeMap;

use super::answer::{Answer, body, error, shown};
use super::clients::{Client, ClientTable};
use super::settings::ControlSettings;
use super::view::Effects;
use super::{ConnInfo, Control};
use crate::wire::body::heartbeat::{
    CheckClientBody, ConnectionInfo, ConsumerConnection, HeartbeatData, ProducerConnection,
    ProducerInfo,
};
use crate::wire::body::lock::{LockBatchAnswer, LockBatchBody};
use crate::wire::body::stats::{ConsumerIdList, SubscriptionAnswer, to_body};
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};
use crate::wire::header::LANGUAGES;
use crate::wire::names;

/// HEART_BEAT.
pub fn heartbeat(
    control: &mut Control,
    conn: ConnInfo,
    request: &Request,
    settings: &ControlSettings,
    now_ms: u64,
) -> (Answer, Effects) {
    let data: HeartbeatData = match body(request) {
        Ok(data) => data,
        Err(refused) => return (Err(refused), Effects::default()),
    };
    let client = Client {
        conn: conn.id,
        addr: conn.addr,
        client_id: data.client_id.as_str().into(),
        language: request.fixed.language,
        version: request.fixed.version,
        last_update_ms: now_ms,
    };
    let (response, effects) = control.heartbeat(&data, client, settings);
    (Ok(response), effects)
}

/// UNREGISTER_CLIENT.
pub fn unregister(
    control: &mut Control,
    conn: ConnInfo,
    request: &Request,
    settings: &ControlSettings,
) -> (Answer, Effects) {
    if let Err(missing) = request.str("clientID") {
        return (Err(missing.into()), Effects::default());
    }
    let producer = request.get("producerGroup");
    let consumer = request.get("consumerGroup");
    let effects = control.unregister(conn.id, producer, consumer, settings);
    (Ok(Response::ok()), effects)
}

/// CHECK_CLIENT_CONFIG: whether the broker can evaluate what a client wants.
pub fn check_config(request: &Request, settings: &ControlSettings) -> Answer {
    if request.body.is_empty() {
        return Ok(Response::ok());
    }
    let asked: CheckClientBody = body(request)?;
    match asked.subscription_data {
        Some(wanted) if !wanted.is_tag_type() && !settings.property_filter => error(
            response::SYSTEM_ERROR,
            format!(
                "the broker does not support consumer to filter message by {:?}: \
                 enablePropertyFilter is false",
                shown(&wanted.expression_type)
            ),
        ),
        _ => Ok(Response::ok()),
    }
}

/// GET_CONSUMER_LIST_BY_GROUP.
pub fn consumer_list(control: &Control, request: &Request) -> Answer {
    let group = request.str("consumerGroup")?;
    let Some(live) = control.clients.consumer_group(group) else {
        let remark = format!("no consumer for this group, {}", shown(group));
        return error(response::SYSTEM_ERROR, remark);
    };
    let consumer_id_list = live.client_ids().collect();
    Ok(Response::body(to_body(&ConsumerIdList {
        consumer_id_list,
    })))
}

/// LOCK_BATCH_MQ.
pub fn lock(control: &mut Control, request: &Request, now_ms: u64) -> Answer {
    let mut asked = lock_body(request)?;
    // What cannot be a queue cannot be locked either, and takes no memory.
    asked.mq_set.retain(|queue| {
        let named = names::check_topic(&queue.topic).is_ok();
        named && queue.broker_name.len() <= names::DERIVED_TOPIC_BYTES_MAX
    });
    let locks = &mut control.locks;
    let locked = locks.lock(
        &asked.consumer_group,
        &asked.client_id,
        asked.mq_set,
        now_ms,
    );
    Ok(Response::body(to_body(&LockBatchAnswer {
        locked: &locked,
    })))
}

/// UNLOCK_BATCH_MQ.
pub fn unlock(control: &mut Control, request: &Request) -> Answer {
    let asked = lock_body(request)?;
    control
        .locks
        .unlock(&asked.consumer_group, &asked.client_id, &asked.mq_set);
    Ok(Response::ok())
}

fn lock_body(request: &Request) -> Result<LockBatchBody, Response> {
    let asked: LockBatchBody = body(request)?;
    if asked.consumer_group.is_empty()
        || asked.consumer_group.len() > names::DERIVED_TOPIC_BYTES_MAX
    {
        let len = asked.consumer_group.len();
        let remark = format!("consumerGroup has {len} bytes, which no group has");
        return error(response::SYSTEM_ERROR, remark);
    }
    if let Err(refused) = ClientTable::check_client_id(&asked.client_id) {
        return error(response::SYSTEM_ERROR, refused.to_string());
    }
    Ok(asked)
}

fn language(client: &Client) -> &'static str {
    LANGUAGES
        .get(usize::from(client.language))
        .copied()
        .unwrap_or("OTHER")
}

fn connection(client: &Client) -> ConnectionInfo {
    ConnectionInfo {
        client_addr: client.addr.to_string(),
        client_id: client.client_id.to_string(),
        language: language(client),
        version: client.version,
    }
}

/// GET_CONSUMER_CONNECTION_LIST.
pub fn consumer_connections(control: &Control, request: &Request) -> Answer {
    let group = request.str("consumerGroup")?;
    let Some(live) = control.clients.consumer_group(group) else {
        let remark = format!("the consumer group[{}] not online", shown(group));
        return error(response::CONSUMER_NOT_ONLINE, remark);
    };
    let subscriptions = live.subscriptions();
    let answer = ConsumerConnection {
        connection_set: live.members().map(connection).collect(),
        consume_from_where: live.from_where(),
        consume_type: live.consume_type(),
        message_model: live.message_model(),
        subscription_table: subscriptions
            .map(|data| (data.topic.as_str(), &**data))
            .collect(),
    };
    Ok(Response::body(to_body(&answer)))
}

/// GET_PRODUCER_CONNECTION_LIST.
pub fn producer_connections(control: &Control, request: &Request) -> Answer {
    let group = request.str("producerGroup")?;
    let Some(members) = control.clients.producer_group(group) else {
        let remark = format!("the producer group[{}] not exist", shown(group));
        return error(response::SYSTEM_ERROR, remark);
    };
    let connection_set = members.map(connection).collect();
    Ok(Response::body(to_body(&ProducerConnection {
        connection_set,
    })))
}

/// GET_ALL_PRODUCER_INFO.
pub fn all_producers(control: &Control) -> Answer {
    let info = |client: &Client| ProducerInfo {
        client_id: client.client_id.to_string(),
        language: language(client),
        last_update_timestamp: client.last_update_ms,
        remote_ip: format!("/{}", client.addr),
        version: client.version,
    };
    let groups = control.clients.producer_groups();
    let data: BTreeMap<&str, Vec<ProducerInfo>> = groups
        .map(|(group, members)| (group, members.map(info).collect()))
        .collect();
    Ok(Response::body(to_body(&BTreeMap::from([("data", data)]))))
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER.
pub fn subscription(control: &Control, request: &Request) -> Answer {
    let (group, topic) = (request.str("group")?, request.str("topic")?);
    let live = control.clients.consumer_group(group);
    let answer = SubscriptionAnswer {
        group,
        subscription_data: live
            .and_then(|live| live.subscription(topic))
            .map(|data| &**data),
        topic,
    };
    Ok(Response::body(to_body(&answer)))
}

#[cfg(test)]
mod tests;
