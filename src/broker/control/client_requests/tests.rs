use super::*;
use crate::shard::{ConnId, ShardId};
use serde_json::{Value, json};

const NOW: u64 = 1_700_000_000_000;

struct Bench {
    control: Control,
    settings: ControlSettings,
}

impl Bench {
    fn new() -> Bench {
        let settings = ControlSettings::default();
        Bench {
            control: Control::new(&settings),
            settings,
        }
    }

    fn conn(slot: u32) -> ConnInfo {
        ConnInfo {
            id: ConnId {
                shard: ShardId(1),
                slot,
                generation: 2,
            },
            addr: ([10, 0, 0, 1], 4000).into(),
        }
    }

    fn beat(&mut self, slot: u32, id: &str) {
        let body = json!({
            "clientID": id,
            "producerDataSet": [{"groupName": "p"}],
            "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subString": "a"}]}],
        });
        let request = Request::new(34).with_body(body.to_string());
        let conn = Bench::conn(slot);
        let (answer, _) = heartbeat(&mut self.control, conn, &request, &self.settings, NOW);
        assert_eq!(answer.unwrap().code, 0);
    }

    fn lock(&mut self, id: &str, queues: &[i32]) -> usize {
        let queues: Vec<Value> = queues
            .iter()
            .map(|queue| json!({"topic": "T", "brokerName": "b", "queueId": queue}))
            .collect();
        let body = json!({"consumerGroup": "g", "clientId": id, "mqSet": queues});
        let request = Request::new(41).with_body(body.to_string());
        let answer = lock(&mut self.control, &request, NOW).unwrap();
        value(&answer)["lockOKMQSet"].as_array().unwrap().len()
    }
}

fn value(answer: &Response) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[test]
fn a_group_lists_its_clients_sorted_and_an_empty_one_is_an_error() {
    let mut bench = Bench::new();
    let ask = Request::new(38).with("consumerGroup", "g");
    assert_eq!(consumer_list(&bench.control, &ask).unwrap_err().code, 1);
    bench.beat(1, "b");
    bench.beat(2, "a");
    bench.beat(3, "a");
    let answer = consumer_list(&bench.control, &ask).unwrap();
    assert_eq!(value(&answer), json!({"consumerIdList": ["a", "b"]}));
}

#[test]
fn connections_are_told_as_tools_expect_them() {
    let mut bench = Bench::new();
    let consumers = Request::new(203).with("consumerGroup", "g");
    let producers = Request::new(204).with("producerGroup", "p");
    assert_eq!(
        consumer_connections(&bench.control, &consumers)
            .unwrap_err()
            .code,
        206
    );
    assert_eq!(
        producer_connections(&bench.control, &producers)
            .unwrap_err()
            .code,
        1
    );
    bench.beat(1, "a");
    let answer = value(&consumer_connections(&bench.control, &consumers).unwrap());
    let connection =
        json!({"clientAddr": "10.0.0.1:4000", "clientId": "a", "language": "JAVA", "version": 479});
    assert_eq!(answer["connectionSet"], json!([connection]));
    assert_eq!(answer["messageModel"], "CLUSTERING");
    assert_eq!(answer["consumeFromWhere"], "CONSUME_FROM_LAST_OFFSET");
    assert_eq!(answer["subscriptionTable"]["T"]["codeSet"], json!([97]));
    let answer = value(&producer_connections(&bench.control, &producers).unwrap());
    assert_eq!(answer["connectionSet"], json!([connection]));
    let answer = value(&all_producers(&bench.control).unwrap());
    assert_eq!(answer["data"]["p"][0]["remoteIP"], "/10.0.0.1:4000");
    let ask = Request::new(345).with("group", "g").with("topic", "T");
    let answer = value(&subscription(&bench.control, &ask).unwrap());
    assert_eq!(answer["subscriptionData"]["subString"], "a");
    let answer = value(&subscription(&bench.control, &ask.with("topic", "U")).unwrap());
    assert!(answer.get("subscriptionData").is_none());
}

#[test]
fn the_locks_of_a_client_that_is_gone_are_free_at_once() {
    let mut bench = Bench::new();
    bench.beat(1, "a");
    bench.beat(2, "b");
    assert_eq!(bench.lock("a", &[0, 1]), 2);
    assert_eq!(bench.lock("b", &[0, 1, 2]), 1);
    let _ = bench
        .control
        .connection_closed(Bench::conn(1).id, &bench.settings);
    assert_eq!(bench.lock("b", &[0, 1, 2]), 3);
    let request = Request::new(35)
        .with("clientID", "b")
        .with("consumerGroup", "g");
    let (answer, _) = unregister(
        &mut bench.control,
        Bench::conn(2),
        &request,
        &bench.settings,
    );
    assert_eq!(answer.unwrap().code, 0);
    assert_eq!(bench.lock("c", &[0, 1, 2]), 3);
}

#[test]
fn a_client_that_reconnected_keeps_its_locks_when_the_old_connection_closes() {
    let mut bench = Bench::new();
    bench.beat(1, "a");
    assert_eq!(bench.lock("a", &[0]), 1);
    bench.beat(2, "a");
    let _ = bench
        .control
        .connection_closed(Bench::conn(1).id, &bench.settings);
    assert_eq!(bench.lock("b", &[0]), 0);
}

#[test]
fn locks_are_only_for_queues_that_can_be() {
    let mut bench = Bench::new();
    let queue = json!({"topic": "../x", "brokerName": "b", "queueId": 0});
    let body = json!({"consumerGroup": "g", "clientId": "c", "mqSet": [queue]});
    let request = Request::new(41).with_body(body.to_string());
    let answer = lock(&mut bench.control, &request, NOW).unwrap();
    assert_eq!(value(&answer), json!({"lockOKMQSet": []}));
    for body in ["{}", "not json", r#"{"consumerGroup":"g"}"#] {
        let request = Request::new(41).with_body(body);
        assert_eq!(
            lock(&mut bench.control, &request, NOW).unwrap_err().code,
            1,
            "{body}"
        );
    }
}

#[test]
fn a_filter_that_is_not_enabled_is_refused_before_it_loses_messages() {
    let settings = ControlSettings::default();
    let ask = |kind: &str| {
        let wanted = json!({"topic": "T", "subString": "a", "expressionType": kind});
        let body = json!({"clientId": "c", "group": "g", "subscriptionData": wanted});
        check_config(&Request::new(46).with_body(body.to_string()), &settings)
    };
    assert_eq!(ask("TAG").unwrap().code, 0);
    let refused = ask("SQL92").unwrap_err();
    assert!(refused.code == 1 && refused.remark.unwrap().contains("enablePropertyFilter"));
}

#[test]
fn a_heartbeat_without_a_readable_body_is_refused() {
    let mut bench = Bench::new();
    for body in ["", "{", "[1]", r#"{"clientID":7}"#] {
        let request = Request::new(34).with_body(body);
        let conn = Bench::conn(1);
        let (answer, effects) = heartbeat(&mut bench.control, conn, &request, &bench.settings, NOW);
        assert_eq!(answer.unwrap_err().code, 1, "{body}");
        assert!(effects.groups.is_empty());
    }
}
