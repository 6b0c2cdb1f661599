//! What clients, brokers and administrators are answered.

use super::*;

#[test]
fn a_registered_topic_is_routed_and_an_unknown_one_is_answered_with_17() {
    let mut bench = Bench::new();
    bench.register(1, &broker("b", "h:1", &["b", "T"]));
    let answer = bench.admin(code::GET_ROUTEINFO_BY_TOPIC, &[("topic", "T")]);
    assert_eq!(
        answer.body,
        concat!(
            r#"{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"b","cluster":"c","#,
            r#""enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b","#,
            r#""perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
        )
    );
    let missing = bench.admin(
        code::GET_ROUTEINFO_BY_TOPIC,
        &[("topic", &"x".repeat(100_000))],
    );
    assert_eq!(missing.code, 17);
    assert!(missing.remark.unwrap().len() < 1000);
    assert_eq!(bench.admin(code::GET_ROUTEINFO_BY_TOPIC, &[]).code, 1);
    assert_eq!(bench.admin(12_345, &[]).code, 3);
}

#[test]
fn every_form_of_registration_gives_the_same_route() {
    let sender = broker("b", "h:1", &["b", "T"]);
    let body = sender.body();
    let bare = r#"{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"topicConfigTable":
        {"b":{"topicName":"b"},"T":{"topicName":"T","readQueueNums":8,"writeQueueNums":8,"perm":6}}}"#;
    let mut old = sender.request(code::REGISTER_BROKER).with_body(bare);
    old.fixed.version = 36;
    let compressed = sender
        .request(code::REGISTER_BROKER)
        .with("compressed", true)
        .with_body(body.encode_compressed());
    let mut routes = Vec::new();
    for request in [sender.registration(), compressed, old] {
        let mut bench = Bench::new();
        assert_eq!(bench.ask(1, &request).code, 0);
        routes.push(bench.route("T").unwrap());
    }
    assert_eq!(routes[0], routes[1]);
    assert_eq!(routes[0], routes[2]);
}

#[test]
fn a_body_that_does_not_match_its_checksum_is_refused() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    let sum = crc32fast::hash(&sender.body().encode()) & 0x7fff_ffff;
    assert_eq!(
        bench
            .ask(1, &sender.registration().with("bodyCrc32", sum ^ 1))
            .code,
        1
    );
    assert!(bench.route("T").is_none());
    assert_eq!(
        bench
            .ask(1, &sender.registration().with("bodyCrc32", sum))
            .code,
        0
    );
    assert!(bench.route("T").is_some());
}

#[test]
fn clusters_groups_and_lists_are_told() {
    let mut bench = Bench::new();
    let empty = bench.admin(code::GET_BROKER_CLUSTER_INFO, &[]).body;
    assert_eq!(empty, r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#);
    let mut sender = broker("b", "h:1", &["b", "T", "U", "S"]);
    sender.topics[2].topic_sys_flag = 1;
    sender.topics[3].topic_sys_flag = 2;
    bench.register(1, &sender);
    let info = bench.admin(code::GET_BROKER_CLUSTER_INFO, &[]).body;
    let info: ClusterInfo = json::parse(&info).unwrap();
    assert_eq!(info.broker_addr_table["b"].broker_addrs[&0], "h:1");
    assert!(info.cluster_addr_table["c"].contains("b"));
    let ask = [("clusterName", "c"), ("brokerName", "b")];
    let group = bench.admin(code::GET_BROKER_MEMBER_GROUP, &ask).body;
    let group: BrokerMemberGroupBody = json::parse(&group).unwrap();
    assert_eq!(group.broker_member_group.broker_addrs[&0], "h:1");
    assert_eq!(
        bench
            .topics(code::GET_TOPICS_BY_CLUSTER, &[("cluster", "c")])
            .len(),
        4
    );
    assert!(
        bench
            .topics(code::GET_TOPICS_BY_CLUSTER, &[("cluster", "x")])
            .is_empty()
    );
    assert_eq!(bench.topics(code::GET_UNIT_TOPIC_LIST, &[]), ["U"]);
    assert_eq!(bench.topics(code::GET_HAS_UNIT_SUB_TOPIC_LIST, &[]), ["S"]);
    assert_eq!(
        bench.topics(code::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, &[]),
        ["S"]
    );
    let system = bench.admin(code::GET_SYSTEM_TOPIC_LIST_FROM_NS, &[]).body;
    assert_eq!(system, r#"{"brokerAddr":"h:1","topicList":["c","b"]}"#);
    let update = Request::new(code::UPDATE_NAMESRV_CONFIG)
        .with_body("enableAllTopicList=false\nenableTopicList=false");
    bench.ask(9, &update);
    assert_eq!(
        bench
            .admin(code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &[])
            .code,
        1
    );
    assert_eq!(bench.admin(code::GET_UNIT_TOPIC_LIST, &[]).code, 1);
}

#[test]
fn an_administrator_adds_and_deletes_topics() {
    let mut bench = Bench::new();
    bench.register(1, &broker("b", "h:1", &["b", "T"]));
    let queues = |broker: &str| TopicRouteData {
        queue_datas: vec![QueueData {
            broker_name: broker.into(),
            perm: 6,
            ..QueueData::default()
        }],
        ..TopicRouteData::default()
    };
    let add = Request::new(code::REGISTER_TOPIC_IN_NAMESRV).with("topic", "N");
    assert_eq!(
        bench
            .ask(9, &add.clone().with_body(json::encode(&queues("x"))))
            .code,
        1
    );
    assert_eq!(
        bench
            .ask(9, &add.with_body(json::encode(&queues("b"))))
            .code,
        0
    );
    assert_eq!(bench.addrs("N"), ["h:1"]);
    bench.admin(
        code::DELETE_TOPIC_IN_NAMESRV,
        &[("topic", "N"), ("clusterName", "x")],
    );
    assert_eq!(bench.addrs("N"), ["h:1"]);
    bench.admin(
        code::DELETE_TOPIC_IN_NAMESRV,
        &[("topic", "N"), ("clusterName", "c")],
    );
    assert!(bench.route("N").is_none());
    bench.admin(code::DELETE_TOPIC_IN_NAMESRV, &[("topic", "T")]);
    assert_eq!(bench.all_topics(), ["b"]);
}

#[test]
fn order_configuration_reaches_brokers_and_routes() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    assert_eq!(bench.register(1, &sender).body.len(), 0);
    let pair = [
        ("namespace", "ORDER_TOPIC_CONFIG"),
        ("key", "T"),
        ("value", "b:4"),
    ];
    assert_eq!(bench.admin(code::GET_KV_CONFIG, &pair).code, 22);
    assert_eq!(bench.admin(code::GET_KVLIST_BY_NAMESPACE, &pair).code, 22);
    assert_eq!(bench.admin(code::PUT_KV_CONFIG, &pair).code, 0);
    assert_eq!(
        bench.admin(code::GET_KV_CONFIG, &pair).get("value"),
        Some("b:4")
    );
    let body = bench.register(1, &sender).body;
    let table: KVTable = json::parse(&body).unwrap();
    assert_eq!(table.table["T"], "b:4");
    assert_eq!(bench.route("T").unwrap().order_topic_conf, None);
    let update = Request::new(code::UPDATE_NAMESRV_CONFIG).with_body("orderMessageEnable=true");
    bench.ask(9, &update);
    assert_eq!(
        bench.route("T").unwrap().order_topic_conf.as_deref(),
        Some("b:4")
    );
    let files: Vec<_> = bench
        .ns
        .take_dirty()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(files, [KV_FILE, CONFIG_FILE]);
    assert!(bench.ns.take_dirty().is_empty());
    bench.admin(code::DELETE_KV_CONFIG, &pair);
    assert_eq!(bench.route("T").unwrap().order_topic_conf, None);
}

#[test]
fn settings_are_read_and_changed_within_limits() {
    let mut bench = Bench::new();
    let text = bench.admin(code::GET_NAMESRV_CONFIG, &[]).body;
    assert!(text.starts_with(b"bindAddress="));
    let update = |text: &'static str| Request::new(code::UPDATE_NAMESRV_CONFIG).with_body(text);
    assert_eq!(bench.ask(9, &update("kvConfigPath=/x")).code, 16);
    assert_eq!(bench.ask(9, &update("nonsense=1")).code, 1);
    assert!(bench.ns.take_dirty().is_empty());
    assert_eq!(bench.ask(9, &update("needWaitForService=true")).code, 0);
    bench.register(1, &broker("b", "h:1", &["b", "T"]));
    bench.now_ms = 44_999;
    assert_eq!(
        bench
            .admin(code::GET_ROUTEINFO_BY_TOPIC, &[("topic", "T")])
            .code,
        1
    );
    bench.now_ms = 45_000;
    assert!(bench.route("T").is_some());
}

#[test]
fn bad_registrations_are_refused_with_the_limit_and_leave_nothing() {
    let good = || broker("b", "h:1", &["b", "T"]);
    let base = || Request::new(code::REGISTER_BROKER).with_body(good().body().encode());
    let with = |name: &str, addr: &str, id: &str| {
        base()
            .with("brokerName", name)
            .with("brokerAddr", addr)
            .with("clusterName", "c")
            .with("haServerAddr", "")
            .with("brokerId", id)
    };
    let topics =
        |name: &str| with("b", "h:1", "0").with_body(good().listing(&["b", name]).body().encode());
    let mut crowded = good();
    crowded.topics[1].read_queue_nums = i32::MAX;
    let long = "x".repeat(10_000);
    for (request, said) in [
        (base(), "brokerName is missing"),
        (
            with(&long, "h:1", "0"),
            "brokerName has 10000 bytes, the limit is 255",
        ),
        (with("", "h:1", "0"), "brokerName is empty"),
        (with("b\0", "h:1", "0"), "control character"),
        (with("b", &long, "0"), "limit is 255"),
        (with("b", "h:1,h:2", "0"), "host:port"),
        (with("b", "h:1", "x"), "brokerId is not a number"),
        (with("b", "h:1", "-1"), "negative"),
        (
            with("b", "h:1", "0").with("heartbeatTimeoutMillis", "-5"),
            "not a number",
        ),
        (
            with("b", "h:1", "0").with("heartbeatTimeoutMillis", "0"),
            "is 0",
        ),
        (with("b", "h:1", "0").with("compressed", "true"), "not zlib"),
        (
            with("b", "h:1", "0").with("__ZONE_NAME", &long),
            "limit is 255",
        ),
        (with("b", "h:1", "0").with_body("{"), "JSON"),
        (
            topics(&long),
            "topic name has 10000 bytes, the limit is 600",
        ),
        (topics("a\nb"), "control character"),
        (
            with("b", "h:1", "0").with_body(crowded.body().encode()),
            "limit is 65536",
        ),
    ] {
        let mut bench = Bench::new();
        let answer = bench.ask(1, &request);
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, 1, "{said}");
        assert!(
            remark.contains(said) && remark.len() < 500,
            "{said}: {remark}"
        );
        assert_eq!((bench.ns.broker_count(), bench.ns.topic_count()), (0, 0));
    }
}

#[test]
fn fifty_thousand_topics_are_listed_quickly() {
    let mut bench = Bench::new();
    let mut sender = broker("b", "h:1", &["b"]);
    sender
        .topics
        .extend((0..50_000).map(|n| TopicConfig::new(format!("topic-{n}"), 8, 6)));
    bench.register(1, &sender);
    let start = std::time::Instant::now();
    let answer = bench.admin(code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &[]);
    let took = start.elapsed();
    assert!(answer.body.len() > 50_000 * 10);
    assert!(took.as_millis() < 1000, "{took:?}");
    println!("206 with 50,001 topics: {took:?}");
}
