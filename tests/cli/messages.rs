use crate::command::{admin, both};
use crate::common::{Config, Send, Server, shared, unique};
use serde_json::{Value, json};

/// A topic of one queue with three messages, and the JSON of the second.
fn filled(server: &Server) -> (String, Value) {
    let topic = unique("filled");
    admin(server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    for (tag, body) in [("a", "first"), ("b", "sec\u{1b}[2Jond"), ("a", "third")] {
        let line = format!("sendMessage -t {topic} -p {body} -k {topic}-key -c {tag}");
        admin(server, &line).good().shows(&["SEND_OK"]);
    }
    let broker = server.address();
    let line = format!("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 1 --output json");
    let message = admin(server, &line).good().json()["message"].clone();
    (topic, message)
}

#[test]
fn a_message_is_found_by_every_name_it_has() {
    let server = shared();
    let (topic, message) = filled(&server);
    assert_eq!(message["body"], "sec\u{1b}[2Jond");
    assert_eq!(
        (&message["tags"], &message["queueOffset"]),
        (&json!("b"), &json!(1))
    );
    let (id, offset_id) = (
        message["msgId"].as_str().unwrap(),
        message["offsetMsgId"].as_str().unwrap(),
    );
    for line in [
        format!("queryMsgById -i {offset_id}"),
        format!("queryMsgById -t {topic} -i {offset_id}"),
        format!("queryMsgById -t {topic} -i {id}"),
        format!("queryMsgByUniqueKey -t {topic} -i {id}"),
    ] {
        let found = both(&server, &line, &["sec\\u{1b}[2Jond", "Checksum", offset_id]);
        assert_eq!(found["message"], message, "{line}");
        assert_eq!(found["message"]["properties"]["TAGS"], "b");
    }
    let all = both(
        &server,
        &format!("queryMsgByKey -t {topic} -k {topic}-key"),
        &["MESSAGE ID", id],
    );
    assert_eq!(all["messages"].as_array().unwrap().len(), 3);
    let all = both(
        &server,
        &format!("queryMsgByUniqueKey -t {topic} -i {id} -a"),
        &[id],
    );
    assert_eq!(all["messages"].as_array().unwrap().len(), 1);
    let decoded = both(&server, &format!("DecodeMessageId -i {id}"), &["Process"]);
    assert!(decoded["ip"].is_string());

    let broker = server.address();
    for (line, code, text) in [
        (
            format!("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 3"),
            3,
            "below 3",
        ),
        (
            format!("queryMsgByKey -t {topic} -k none"),
            3,
            "no message with key",
        ),
        (
            format!("queryMsgByUniqueKey -t {topic} -i 7F00000100000000000000000000FFFF"),
            3,
            "no message with id",
        ),
        ("queryMsgById -i abc".to_owned(), 2, "-t TOPIC"),
        ("DecodeMessageId -i abc".to_owned(), 2, "hex digits"),
        (
            format!("queryMsgByOffset -t {topic} -b Nobody -i 0 -o 0"),
            3,
            "Nobody",
        ),
    ] {
        admin(&server, &line).refused(code, text);
    }
}

#[test]
fn groups_that_have_passed_a_message_are_told() {
    let server = shared();
    let (topic, message) = filled(&server);
    let group = unique("passes");
    admin(&server, &format!("updateSubGroup -g {group}")).good();
    admin(
        &server,
        &format!("resetOffsetByTime -g {group} -t {topic} -s 0 -y"),
    )
    .good();
    let id = message["offsetMsgId"].as_str().unwrap();
    let found = both(
        &server,
        &format!("queryMsgById -i {id}"),
        &["HAS PASSED IT", &group],
    );
    assert_eq!(
        found["groups"],
        json!([{ "group": group, "passed": false, "behind": 1 }])
    );
    admin(
        &server,
        &format!("skipAccumulatedMessage -g {group} -t {topic} -y"),
    )
    .good();
    let found = admin(&server, &format!("queryMsgById -i {id} --output json")).json();
    assert_eq!(found["groups"][0]["passed"], true);
}

#[test]
fn messages_are_read_in_their_order() {
    let server = shared();
    let (topic, message) = filled(&server);
    let offsets = |found: &Value| -> Vec<i64> {
        let messages = found["messages"].as_array().unwrap().iter();
        messages
            .map(|message| message["queueOffset"].as_i64().unwrap())
            .collect()
    };
    let all = both(
        &server,
        &format!("printMsg -t {topic}"),
        &["first", "third"],
    );
    assert_eq!(offsets(&all), [0, 1, 2]);
    let tagged = both(
        &server,
        &format!("printMsg -t {topic} -s a -d false"),
        &["TAGS"],
    );
    assert_eq!(offsets(&tagged), [0, 2]);
    assert!(tagged["messages"][0]["body"].is_null());
    let few = both(
        &server,
        &format!("printMsg -t {topic} --max 2"),
        &["There are more than 2"],
    );
    assert_eq!((offsets(&few), &few["more"]), (vec![0, 1], &json!(true)));
    let time = message["storeTimestamp"].as_i64().unwrap();
    let within = both(
        &server,
        &format!("printMsg -t {topic} -b {time} -e {time}"),
        &["sec"],
    );
    assert!(offsets(&within).contains(&1), "{within}");
    let none = both(
        &server,
        &format!("printMsg -t {topic} -e 1000"),
        &["no messages"],
    );
    assert!(offsets(&none).is_empty());

    let broker = server.address();
    let queue = format!("printMsgByQueue -t {topic} -a {broker} -i 0");
    let counted = both(
        &server,
        &format!("{queue} -p false -f true"),
        &["TAG", "MESSAGES"],
    );
    assert_eq!(
        counted["tags"],
        json!([{ "tag": "a", "messages": 2 }, { "tag": "b", "messages": 1 }])
    );
    assert_eq!(offsets(&both(&server, &queue, &["third"])), [0, 1, 2]);

    let consumed = both(
        &server,
        &format!("consumeMessage -t {topic} -c 2"),
        &["first"],
    );
    assert_eq!(offsets(&consumed), [0, 1]);
    let consumed = both(
        &server,
        &format!("consumeMessage -t {topic} -b {broker} -i 0 -o 2"),
        &["third"],
    );
    assert_eq!(offsets(&consumed), [2]);

    let entries = both(
        &server,
        &format!("queryCq -t {topic} -q 0 -i 0"),
        &["LOG OFFSET"],
    );
    let entries = entries["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[1]["physicOffset"], message["commitLogOffset"]);
}

#[test]
fn bodies_that_are_no_text_are_shown_as_bytes() {
    let server = shared();
    let topic = unique("binary");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let mut client = server.connect();
    client
        .call(Send::new(&topic, vec![0xff, 0x00, b'a']).queue(0))
        .expect(0);
    let broker = server.address();
    let found = both(
        &server,
        &format!("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 0"),
        &["3 bytes that are no text", "ff 00 61"],
    );
    assert_eq!(found["message"]["bodyBase64"], "/wBh");
}

#[test]
fn traces_are_looked_for() {
    let server = shared();
    let topic = unique("traces");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let line = format!("queryMsgTraceById -i ID -t {topic}");
    admin(&server, &line).refused(3, "no trace");
    let fields = "Pub 1700000000000 R makers T ID tag key h:1 5 7 0 OFF true";
    let body = fields.replace(' ', "\u{1}") + "\u{2}";
    let mut client = server.connect();
    client
        .call(Send::new(&topic, body).queue(0).property("KEYS", "ID"))
        .expect(0);
    let found = both(&server, &line, &["Pub", "makers", "success"]);
    assert_eq!(found["traces"][0]["costMs"], 7);
}

#[test]
fn a_message_goes_where_it_is_sent() {
    let server = shared();
    let topic = unique("sent");
    admin(&server, &format!("updateTopic -t {topic} -r 3 -w 3")).good();
    let broker = server.address();
    let sent = both(
        &server,
        &format!("sendMessage -t {topic} -p x -b {broker} -i 2"),
        &["SEND_OK"],
    );
    assert_eq!(
        (&sent["queueId"], &sent["sendStatus"]),
        (&json!(2), &json!("SEND_OK"))
    );
    admin(
        &server,
        &format!("sendMessage -t {topic} -p x -b {broker} -i 3"),
    )
    .refused(4, "code 29");
    let fresh = unique("fresh");
    admin(&server, &format!("sendMessage -t {fresh} -p x")).good();
    admin(&server, &format!("topicRoute -t {fresh}")).good();
}

#[test]
fn bodies_are_read_in_the_encoding_that_is_named() {
    let server = shared();
    let topic = unique("encoded");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let mut client = server.connect();
    let body = vec![0xc4, 0xe3, 0xba, 0xc3];
    let sent = client.call(Send::new(&topic, body).queue(0)).expect(0);
    let id = &sent.ext["msgId"];
    let broker = server.address();
    for line in [
        format!("queryMsgById -i {id} -f GBK"),
        format!("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 0 -f gbk"),
    ] {
        let found = both(&server, &line, &["你好"]);
        assert_eq!(found["message"]["body"], "你好", "{line}");
    }
    for line in [
        format!("printMsg -t {topic} -c GBK"),
        format!("printMsgByQueue -t {topic} -a {broker} -i 0 -c GBK"),
    ] {
        let found = both(&server, &line, &["你好"]);
        assert_eq!(found["messages"][0]["body"], "你好", "{line}");
    }
    let plain = admin(&server, &format!("printMsg -t {topic} --output json"));
    assert_eq!(plain.good().json()["messages"][0]["bodyBase64"], "xOO6ww==");
    admin(&server, &format!("printMsg -t {topic} -c EBCDIC")).refused(2, "GBK");
}

#[test]
fn a_message_is_sent_once_more_with_its_id() {
    let server = shared();
    let (topic, message) = filled(&server);
    let (id, offset_id) = (&message["msgId"], message["offsetMsgId"].as_str().unwrap());
    let line = format!("queryMsgById -i {offset_id} -s true --output json");
    let sent = admin(&server, &line).good().json();
    assert_eq!(
        (&sent["originalMsgId"], &sent["queueOffset"]),
        (&json!(offset_id), &json!(3))
    );
    let broker = server.address();
    let line = format!("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 3 --output json");
    let again = admin(&server, &line).good().json()["message"].take();
    for member in ["msgId", "body", "tags", "keys"] {
        assert_eq!(again[member], message[member], "{member}");
    }
    assert!(id.is_string());
    let shown = admin(&server, &format!("queryMsgById -i {offset_id} -s false"));
    shown.good().shows(&["Checksum"]);
}

#[test]
fn queues_are_found_by_the_parent_of_a_topic() {
    let server = shared();
    let (topic, _) = filled(&server);
    let parent = unique("parent");
    admin(&server, &format!("updateTopic -t {parent} -r 1 -w 1")).good();
    // The route is the parent's, the messages are the topic's own.
    let found = both(
        &server,
        &format!("printMsg -t {topic} -l {parent}"),
        &["third"],
    );
    assert_eq!(found["messages"].as_array().unwrap().len(), 3);
    let line = format!("printMsg -t {topic} -l none-such");
    admin(&server, &line).refused(3, "none-such");
}

#[test]
fn a_send_leaves_a_trace_where_it_is_told_to() {
    let server = Config::server().set("traceTopicEnable", true).start();
    let topic = unique("traced");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let send = format!("sendMessage -t {topic} -p body -k order-7 -c new --output json");
    let sent = admin(&server, &format!("{send} -m true")).good().json();
    let id = sent["offsetMsgId"].as_str().unwrap();
    let found = admin(&server, &format!("queryMsgById -i {id} --output json"));
    let message = found.good().json()["message"].take();
    let key = message["msgId"].as_str().unwrap_or(id);
    for name in [key, "order-7"] {
        let line = format!("queryMsgByKey -t RMQ_SYS_TRACE_TOPIC -k {name} --output json");
        let traces = admin(&server, &line).good().json()["messages"].take();
        assert_eq!(traces.as_array().unwrap().len(), 1, "{name}");
    }
    let line = format!("queryMsgTraceById -i {key}");
    let traces = both(&server, &line, &["Pub", "RINGMQ_TOOLS", "success"]);
    assert_eq!(traces["traces"].as_array().unwrap().len(), 1);
    assert!(traces["traces"][0]["time"].as_i64().unwrap() > 1_700_000_000_000);
    let untraced = admin(&server, &send).good().json();
    let id = untraced["offsetMsgId"].as_str().unwrap();
    let found = admin(&server, &format!("queryMsgById -i {id} --output json"));
    let message = found.good().json()["message"].take();
    let key = message["msgId"].as_str().unwrap_or(id);
    admin(&server, &format!("queryMsgTraceById -i {key}")).refused(3, "no trace");
}

#[test]
fn ids_lead_to_every_shard_that_is_a_broker() {
    let server = Config::per_shard(2).set("brokerIP1", "127.0.0.1").start();
    let topic = unique("sharded");
    admin(&server, &format!("updateTopic -t {topic} -r 1 -w 1")).good();
    let nameserver = server.nameserver();
    for shard in 0..2 {
        let mut client = server.connect_shard(shard);
        let body = format!("of shard {shard}");
        let sent = client.call(Send::new(&topic, body.clone()).queue(0));
        let id = &sent.expect(0).ext["msgId"];
        for line in [
            format!("queryMsgById -i {id}"),
            format!("queryMsgById -i {id} -n {nameserver} -t {topic}"),
        ] {
            let found = both(&server, &line, &[&body]);
            let host = server.shard_address(shard).to_string();
            assert_eq!(found["message"]["storeHost"], host, "{line}");
        }
    }
}
