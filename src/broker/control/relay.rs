//! Requests that the broker passes on to a client: 307, 309.
//!
//! Source of the rules: `AdminBrokerProcessor.callConsumer`, `Broker2Client`.

use std::cell::RefCell;
use std::time::Duration;

use super::Control;
use super::answer::{Answer, error, shown};
use super::settings::ControlSettings;
use crate::broker::peers::{CallError, Peers};
use crate::shard::ConnId;
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};

/// How long a client may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The first version of clients that can be asked, the ordinal of `V3_1_8_SNAPSHOT`.
const CLIENT_VERSION_MIN: i32 = 62;

/// GET_CONSUMER_RUNNING_INFO.
pub async fn running_info(control: &RefCell<Control>, peers: &Peers, request: &Request) -> Answer {
    let conn = find(&control.borrow(), request)?;
    call(peers, conn, request, forward(request, &[])).await
}

/// CONSUME_MESSAGE_DIRECTLY: hands a message to a client, and returns what came of it.
pub async fn consume_directly(
    control: &RefCell<Control>,
    peers: &Peers,
    request: &Request,
    settings: &ControlSettings,
) -> Answer {
    let id = request.str("msgId")?;
    let Some(offset) = offset_of_id(id) else {
        let remark = format!("msgId {:?} is no offset message id", shown(id));
        return error(response::SYSTEM_ERROR, remark);
    };
    let (conn, fields) = {
        let control = control.borrow();
        (find(&control, request)?, flags(&control, request, settings))
    };
    let Some(record) = peers.record(offset).await else {
        let remark = format!("can not find message by the offset, {offset}");
        return error(response::SYSTEM_ERROR, remark);
    };
    call(
        peers,
        conn,
        request,
        forward(request, &fields).with_body(record),
    )
    .await
}

/// What the broker knows of the message's topic and group, for the client.
fn flags(
    control: &Control,
    request: &Request,
    settings: &ControlSettings,
) -> Vec<(&'static str, String)> {
    let mut fields = vec![("brokerName", settings.broker_name.clone())];
    if let Some(topic) = request
        .get("topic")
        .and_then(|topic| control.topics.get(topic))
    {
        fields.push(("topicSysFlag", topic.topic_sys_flag.to_string()));
    }
    if let Some(group) = request
        .get("consumerGroup")
        .and_then(|group| control.groups.get(group))
    {
        fields.push(("groupSysFlag", group.group_sys_flag.to_string()));
    }
    fields
}

/// The request as the client gets it: everything that came, but for `fields`.
fn forward(request: &Request, fields: &[(&'static str, String)]) -> Request {
    let mut onward = Request::new(request.fixed.code).with_body(request.body.clone());
    for (key, value) in request.ext() {
        if !fields.iter().any(|(field, _)| *field == key) {
            onward = onward.with(key, value);
        }
    }
    for (key, value) in fields {
        onward = onward.with(key, value);
    }
    onward
}

fn find(control: &Control, request: &Request) -> Result<ConnId, Response> {
    let (group, id) = (request.str("consumerGroup")?, request.str("clientId")?);
    let live = control.clients.consumer_group(group);
    let Some(client) = live.and_then(|live| live.member_by_id(id)) else {
        let (group, id) = (shown(group), shown(id));
        let remark = format!("The Consumer <{group}> <{id}> not online");
        return error(response::SYSTEM_ERROR, remark);
    };
    if client.version < CLIENT_VERSION_MIN {
        let remark = format!(
            "The Consumer <{}> Version <{}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
            shown(id),
            client.version
        );
        return error(response::SYSTEM_ERROR, remark);
    }
    Ok(client.conn)
}

async fn call(peers: &Peers, conn: ConnId, request: &Request, onward: Request) -> Answer {
    let answered = peers.call(conn, onward, CALL_TIMEOUT).await;
    answered.or_else(|failed| {
        let group = shown(request.get("consumerGroup").unwrap_or_default());
        let id = shown(request.get("clientId").unwrap_or_default());
        match failed {
            CallError::Timeout => error(
                response::CONSUME_MSG_TIMEOUT,
                format!(
                    "consumer <{group}> <{id}> Timeout: {} s",
                    CALL_TIMEOUT.as_secs()
                ),
            ),
            CallError::Gone => error(
                response::SYSTEM_ERROR,
                format!("invoke consumer <{group}> <{id}> failed: the connection is gone"),
            ),
        }
    })
}

/// The physical offset in an offset message id: the last 16 of 32 hexadecimal
/// digits, or of 56 where the address before is an IPv6 one. The address is not
/// used.
fn offset_of_id(id: &str) -> Option<i64> {
    if !matches!(id.len(), 32 | 56) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let offset = u64::from_str_radix(&id[id.len() - 16..], 16).ok()?;
    i64::try_from(offset).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_for_its_offset_alone() {
        assert_eq!(offset_of_id("7F00000100002A9F000000000000000A"), Some(10));
        let v6 = format!("{}00002A9F00000000000000ff", "0".repeat(32));
        assert_eq!(offset_of_id(&v6), Some(255));
        for id in [
            "",
            "7F",
            "7F00000100002A9FFFFFFFFFFFFFFFFF",
            &"日".repeat(32),
            &"+".repeat(32),
        ] {
            assert_eq!(offset_of_id(id), None, "{id}");
        }
    }

    #[test]
    fn what_the_broker_knows_replaces_what_was_sent() {
        let settings = ControlSettings::default();
        let control = Control::new(&settings);
        let request = Request::new(309)
            .with("brokerName", "another")
            .with("topic", "BenchmarkTest")
            .with("consumerGroup", "TOOLS_CONSUMER")
            .with("clientId", "c");
        let onward = forward(&request, &flags(&control, &request, &settings));
        let mut fields: Vec<_> = onward.ext().map(|(k, v)| format!("{k}={v}")).collect();
        fields.sort();
        let expected = "brokerName=broker-a,clientId=c,consumerGroup=TOOLS_CONSUMER,\
                        groupSysFlag=0,topic=BenchmarkTest,topicSysFlag=0";
        assert_eq!(fields.join(","), expected);
        assert_eq!(find(&control, &request).unwrap_err().code, 1);
    }
}
