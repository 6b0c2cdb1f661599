use crate::command::{admin, both};
use crate::common::{Config, Send, shared, unique};
use ringmq::wire::command::Request;
use serde_json::json;

#[test]
fn a_topic_is_made_shown_changed_and_deleted() {
    let server = shared();
    let topic = unique("made");
    let made = both(
        &server,
        &format!("updateTopic -t {topic} -r 3 -w 2"),
        &["READ QUEUES", "rw"],
    );
    assert_eq!(made["brokers"][0]["readQueueNums"], 3);

    let list = both(&server, "topicList", &["TOPIC", &topic]);
    let all = list["topics"].as_array().unwrap();
    assert!(all.contains(&json!({ "topic": topic })), "{list}");

    let route = both(
        &server,
        &format!("topicRoute -t {topic}"),
        &["ADDRESS", &server.address().to_string()],
    );
    assert_eq!(route["topic"], *topic);
    assert_eq!(route["brokers"][0]["address"], server.address().to_string());
    assert_eq!(route["brokers"][0]["writeQueueNums"], 2);
    assert_eq!(route["brokers"][0]["brokerId"], 0);

    let mut client = server.connect();
    client.call(Send::new(&topic, "x").queue(1)).expect(0);
    let status = both(
        &server,
        &format!("topicStatus -t {topic}"),
        &["Messages  1", "MAX OFFSET"],
    );
    assert_eq!(status["messages"], 1);
    assert_eq!(status["queues"].as_array().unwrap().len(), 3);
    let queue = &status["queues"][1];
    assert_eq!(
        (&queue["queueId"], &queue["maxOffset"]),
        (&json!(1), &json!(1))
    );
    assert!(queue["lastUpdateTimestamp"].as_i64().unwrap() > 1_700_000_000_000);
    assert!(status["queues"][0]["lastUpdateTimestamp"].is_null());

    let clusters = both(
        &server,
        &format!("topicClusterList -t {topic}"),
        &["DefaultCluster"],
    );
    assert_eq!(clusters["clusters"][0]["cluster"], "DefaultCluster");

    let perm = both(
        &server,
        &format!("updateTopicPerm -t {topic} -p 4"),
        &["NOW"],
    );
    assert_eq!(perm["brokers"][0]["perm"], "r");
    let route = admin(&server, &format!("topicRoute -t {topic} --output json")).json();
    assert_eq!(route["brokers"][0]["perm"], "r");
    assert_eq!(route["brokers"][0]["readQueueNums"], 3, "the rest stays");

    let shares = both(
        &server,
        &format!("allocateMQ -t {topic} -i a,b"),
        &["CLIENT"],
    );
    let owners: Vec<_> = shares["queues"].as_array().unwrap().iter().collect();
    assert_eq!(owners.len(), 3);
    assert_eq!(
        (&owners[1]["client"], &owners[2]["client"]),
        (&json!("a"), &json!("b"))
    );

    let delete = format!("deleteTopic -t {topic}");
    admin(&server, &delete).refused(2, "add --yes");
    admin(&server, &format!("{delete} --yes"))
        .good()
        .shows(&["DELETED FROM"]);
    admin(&server, &format!("{delete} --yes")).refused(3, "there is no topic");
}

#[test]
fn topics_are_listed_with_their_groups() {
    let server = shared();
    let (topic, group) = (unique("listed"), unique("reads"));
    admin(&server, &format!("updateTopic -t {topic}")).good();
    admin(&server, &format!("updateSubGroup -g {group}")).good();
    let reset = format!("resetOffsetByTime -g {group} -t {topic} -s now -y");
    admin(&server, &reset).good();
    let list = both(&server, "topicList -c", &["CLUSTERS", &group]);
    let topics = list["topics"].as_array().unwrap();
    let row = topics.iter().find(|row| row["topic"] == *topic).unwrap();
    assert_eq!(row["clusters"], json!(["DefaultCluster"]));
    assert_eq!(row["groups"], json!([group]));
}

#[test]
fn the_cluster_may_be_named_and_must_be_where_it_is_unclear() {
    let server = shared();
    let topic = unique("where");
    admin(
        &server,
        &format!("updateTopic -c DefaultCluster -t {topic}"),
    )
    .good();
    let address = server.address();
    admin(
        &server,
        &format!("updateTopic -b {address} -t {topic} -r 9"),
    )
    .good();
    admin(&server, &format!("updateTopic -c Nowhere -t {topic}"))
        .refused(3, "there is no cluster \"Nowhere\"");
    admin(&server, &format!("updateTopic -b Nobody -t {topic}"))
        .refused(3, "there is no broker \"Nobody\"");
    admin(&server, "updateTopic -t bad/name").refused(2, "bad/name");
    admin(&server, "updateTopic -t TBW102").refused(4, "code 29");
    admin(&server, "topicRoute -t wheer-0").refused(3, "there is no topic");
}

#[test]
fn a_name_that_is_nearly_right_is_offered() {
    let server = shared();
    admin(&server, "updateTopic -t NearlyRight").good();
    admin(&server, "topicStatus -t nearlyright").refused(3, "did you mean NearlyRight?");
    admin(&server, "clusterList -c DefaultClustre").refused(3, "did you mean DefaultCluster?");
}

#[test]
fn many_topics_come_from_a_file() {
    let server = shared();
    let (first, second) = (unique("file"), unique("file"));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("topics"));
    let topics = json!([
        { "topicName": first, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6 },
        { "topicName": second, "readQueueNums": 1, "writeQueueNums": 1, "perm": 4 },
    ]);
    std::fs::write(&path, topics.to_string()).unwrap();
    let line = format!("updateTopicList -f {}", path.display());
    let made = both(&server, &line, &[&first, &second]);
    assert_eq!(made["topics"][1]["topic"], *second);
    admin(&server, &format!("topicRoute -t {second}")).good();
    std::fs::write(&path, "[{").unwrap();
    admin(&server, &line).refused(2, "JSON");
    std::fs::remove_file(&path).unwrap();
    admin(&server, &line).refused(2, "No such file");
}

#[test]
fn an_ordered_topic_has_its_queues_at_the_nameservers() {
    let server = Config::server().set("brokerName", "broker-o").start();
    admin(&server, "updateTopic -t Ordered -w 4 -o true")
        .good()
        .shows(&["broker-o:4"]);
    let order = both(
        &server,
        "updateOrderConf -t Ordered -m get",
        &["broker-o:4"],
    );
    assert_eq!(order["orderTopicConf"], "broker-o:4");
    both(
        &server,
        "updateOrderConf -t Ordered -m put -v broker-o:2",
        &["broker-o:2"],
    );
    admin(&server, "updateOrderConf -t Ordered -m put -v queues").refused(2, "BROKER:QUEUES");
    admin(&server, "updateOrderConf -t Ordered -m delete").refused(2, "--yes");
    admin(&server, "updateOrderConf -t Ordered -m delete -y").good();
    admin(&server, "updateOrderConf -t Ordered -m get").refused(3, "has no order");
}

#[test]
fn all_topics_are_shown_with_their_rates() {
    let server = shared();
    let topic = unique("rates");
    admin(&server, &format!("updateTopic -t {topic}")).good();
    let line = format!("statsAll -t {topic}");
    let stats = both(&server, &line, &["BEHIND", &topic]);
    assert_eq!(stats["rates"][0]["topic"], *topic);
    assert!(stats["rates"][0]["group"].is_null());
    admin(&server, "statsAll -t none-such").refused(3, "none-such");
    let text = admin(&server, &format!("{line} -a")).good().stdout;
    assert_eq!(text, "no topics\n", "it is not active");
}

#[test]
fn what_is_not_given_of_a_topic_stays() {
    let server = shared();
    let topic = unique("kept");
    let update = format!("updateTopic -t {topic}");
    let shown = |line: &str| {
        let made = both(&server, line, &["READ QUEUES"]);
        let broker = &made["brokers"][0];
        let route = admin(&server, &format!("topicRoute -t {topic} --output json")).json();
        for column in ["readQueueNums", "writeQueueNums", "perm"] {
            assert_eq!(route["brokers"][0][column], broker[column], "{column}");
        }
        (
            broker["readQueueNums"].as_i64(),
            broker["writeQueueNums"].as_i64(),
            broker["perm"].as_str().map(str::to_owned),
        )
    };
    let perm = |text: &str| Some(text.to_owned());
    assert_eq!(shown(&update), (Some(8), Some(8), perm("rw")));
    assert_eq!(shown(&format!("{update} -r 16 -w 12")).1, Some(12));
    let closed = shown(&format!("{update} -p 4"));
    assert_eq!(closed, (Some(16), Some(12), perm("r")));
    let wider = shown(&format!("{update} -r 20 -u true"));
    assert_eq!(wider, (Some(20), Some(12), perm("r")));
    let ask = Request::new(351).with("topic", &topic);
    let config = server.connect().call(ask).expect(0).body;
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    assert_eq!(config["topicSysFlag"], 1);
}

#[test]
fn an_order_of_one_broker_keeps_that_of_others() {
    let server = shared();
    let topic = unique("ordered");
    let conf = |line: &str| admin(&server, line).good().json()["orderTopicConf"].take();
    let put = format!("updateOrderConf -t {topic} -m put -v other:4");
    admin(&server, &put).good();
    let list = admin(&server, "clusterList --output json").good().json();
    let name = list["brokers"][0]["brokerName"]
        .as_str()
        .unwrap()
        .to_owned();
    let address = server.address();
    let wanted = |queues: i32| {
        let mut parts = ["other:4".to_owned(), format!("{name}:{queues}")];
        parts.sort();
        json!(parts.join(";"))
    };
    let update = format!("updateTopic -t {topic} -o true --output json");
    assert_eq!(conf(&format!("{update} -w 3 -b {address}")), wanted(3));
    assert_eq!(conf(&format!("{update} -w 5 -b {name}")), wanted(5));
    let get = format!("updateOrderConf -t {topic} -m get --output json");
    assert_eq!(conf(&get), wanted(5));
    let whole = conf(&format!("{update} -c DefaultCluster"));
    assert_eq!(whole, json!(format!("{name}:5")), "a cluster's is its own");
    admin(
        &server,
        &format!("updateTopic -t {topic} -o true -b 127.0.0.1:1 --timeout 1s"),
    )
    .refused(1, "127.0.0.1:1");
}
