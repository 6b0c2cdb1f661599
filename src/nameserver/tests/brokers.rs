//! Brokers come, change and go.

use proptest::prelude::*;

use super::*;

#[test]
fn after_a_restart_a_single_topic_waits_for_the_whole_table() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T", "U"]);
    let delta = sender.listing(&["U"]);
    let refused = bench.ask(1, &delta.registration());
    assert_eq!(refused.code, 1);
    assert_eq!(bench.ns.broker_count(), 0);
    assert!(bench.all_topics().is_empty());
    // The refused broker left nothing behind that its later table trips over.
    bench.register(1, &sender);
    assert_eq!(bench.all_topics(), ["T", "U", "b"]);
    bench.register(1, &sender.listing(&["V"]));
    assert_eq!(bench.all_topics(), ["T", "U", "V", "b"]);
}

#[test]
fn what_belongs_to_an_older_connection_does_not_remove_a_live_broker() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    bench.register(1, &sender);
    bench.register(2, &sender);
    bench.ns.connection_closed(77, 0);
    assert_eq!(
        bench.ask(1, &sender.request(code::UNREGISTER_BROKER)).code,
        0
    );
    assert_eq!(bench.addrs("T"), ["h:1"]);
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.addrs("T"), ["h:1"]);
    bench.ns.connection_closed(2, 0);
    assert!(bench.route("T").is_none());
    assert_eq!((bench.ns.broker_count(), bench.ns.topic_count()), (0, 0));
}

#[test]
fn a_broker_that_only_asks_on_its_new_connection_is_kept() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    bench.register(1, &sender);
    let version = serde_json::to_vec(&sender.version).unwrap();
    let query = sender.request(code::QUERY_DATA_VERSION).with_body(version);
    assert_eq!(bench.ask(2, &query).get("changed"), Some("false"));
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.addrs("T"), ["h:1"]);
    bench.ns.connection_closed(2, 0);
    assert!(bench.route("T").is_none());
}

#[test]
fn an_older_edition_on_an_older_connection_is_ignored() {
    let mut bench = Bench::new();
    let old = broker("b", "h:1", &["b", "T", "old"]);
    bench.register(1, &old);
    bench.register(2, &old.listing(&["b", "T"]));
    bench.register(1, &old);
    assert_eq!(bench.all_topics(), ["T", "b"]);
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.addrs("T"), ["h:1"]);
}

#[test]
fn a_broker_unregisters_over_the_connection_it_has_now() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    bench.register(1, &sender);
    let mut other = sender.clone();
    other.id = 5;
    bench.ask(1, &other.request(code::UNREGISTER_BROKER));
    assert!(bench.route("T").is_some(), "another id was meant");
    bench.ask(3, &sender.request(code::UNREGISTER_BROKER));
    assert!(bench.route("T").is_none());
    assert_eq!(
        bench.ask(3, &sender.request(code::UNREGISTER_BROKER)).code,
        0
    );
}

#[test]
fn an_id_is_not_taken_by_an_address_of_an_older_epoch() {
    let mut bench = Bench::new();
    let mut newer = broker("b", "h:1", &["b", "T"]);
    newer.version.state_version = 2;
    let older = broker("b", "h:2", &["b", "T", "old"]);
    bench.register(1, &older);
    bench.register(2, &newer);
    assert_eq!(bench.addrs("T"), ["h:1"]);
    bench.register(1, &older);
    assert_eq!(bench.addrs("T"), ["h:1"]);
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.addrs("T"), ["h:1"]);
}

#[test]
fn a_silent_broker_expires_and_signs_of_life_keep_it() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    let quick = broker("q", "h:2", &["q", "T"]);
    bench.register(1, &sender);
    let quick = quick.registration().with("heartbeatTimeoutMillis", 10_000);
    assert_eq!(bench.ask(2, &quick).code, 0);
    bench.now_ms = 10_000;
    assert!(bench.ns.expire(bench.now_ms).is_empty());
    bench.now_ms = 10_001;
    assert_eq!(bench.ns.expire(bench.now_ms), [2]);
    assert_eq!(bench.addrs("T"), ["h:1"]);
    // Registered again before the caller got to close the old connection.
    assert_eq!(bench.ask(3, &quick).code, 0);
    bench.ns.connection_closed(2, bench.now_ms);
    assert_eq!(bench.addrs("T"), ["h:1", "h:2"]);

    bench.now_ms = 100_000;
    assert_eq!(
        bench.ask(1, &sender.request(code::BROKER_HEARTBEAT)).code,
        0
    );
    bench.now_ms = 200_000;
    let version = serde_json::to_vec(&sender.version).unwrap();
    bench.ask(
        1,
        &sender.request(code::QUERY_DATA_VERSION).with_body(version),
    );
    bench.now_ms = 320_000;
    assert_eq!(bench.ns.expire(bench.now_ms), [3]);
    bench.now_ms = 320_001;
    assert_eq!(bench.ns.expire(bench.now_ms), [1]);
    assert_eq!(bench.ns.topic_count(), 0);
}

#[test]
fn a_restarted_broker_loses_the_topics_it_no_longer_has() {
    let mut bench = Bench::new();
    let master = broker("b", "h:1", &["b", "T", "TBW102"]);
    bench.register(1, &master);
    bench.register(2, &master.slave(1, "h:2"));
    bench.register(3, &master.listing(&["b", "T"]));
    assert_eq!(bench.all_topics(), ["T", "b"]);
}

#[test]
fn a_running_broker_may_send_its_table_in_parts() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T", "TBW102"]);
    let part = sender.listing(&["U", "V"]);
    bench.register(1, &sender);
    bench.register(1, &part);
    for _ in 0..3 {
        bench.register(1, &sender);
        bench.register(1, &part);
        bench.register(1, &sender.listing(&["W"]));
        assert_eq!(bench.all_topics(), ["T", "TBW102", "U", "V", "W", "b"]);
    }
    // What it lists no more goes with the second whole table at the latest.
    bench.register(1, &sender.listing(&["b", "T"]));
    bench.register(1, &sender.listing(&["b", "T"]));
    assert_eq!(bench.all_topics(), ["T", "b"]);
}

#[test]
fn topics_stay_while_a_slave_is_left_and_go_with_the_last_address() {
    let mut bench = Bench::new();
    let master = broker("b", "h:1", &["b", "T"]);
    bench.register(1, &master);
    let answer = bench.register(2, &master.slave(1, "h:2"));
    assert_eq!(answer.get("masterAddr"), Some("h:1"));
    assert_eq!(answer.get("haServerAddr"), Some("ha-h:1"));
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.addrs("T"), ["h:2"]);
    assert_eq!(bench.perm("T"), 6);
    bench.ns.connection_closed(2, 0);
    assert!(bench.route("T").is_none());
}

#[test]
fn a_slave_that_may_act_as_master_is_shown_as_one_for_reading() {
    let mut bench = Bench::new();
    let mut master = broker("b", "h:1", &["b", "T"]);
    master.acting_master = Some(true);
    let slave = master.slave(2, "h:2");
    bench.register(1, &master);
    bench.register(2, &slave);
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.perm("T"), 4);
    bench.register(2, &slave.listing(&["b", "T"]));
    assert_eq!(bench.perm("T"), 4);
    let ids = |bench: &mut Bench| {
        bench.route("T").unwrap().broker_datas[0]
            .broker_addrs
            .clone()
    };
    assert_eq!(ids(&mut bench), [(2, "h:2".to_owned())].into());
    let update = Request::new(code::UPDATE_NAMESRV_CONFIG).with_body("supportActingMaster=true");
    assert_eq!(bench.ask(9, &update).code, 0);
    assert_eq!(ids(&mut bench), [(0, "h:2".to_owned())].into());
    bench.register(3, &master);
    assert_eq!(bench.perm("T"), 6);
    assert_eq!(bench.addrs("T"), ["h:1", "h:2"]);
}

#[test]
fn a_slave_that_becomes_master_keeps_one_id() {
    let mut bench = Bench::new();
    let master = broker("b", "h:1", &["b", "T"]);
    bench.register(1, &master);
    bench.register(2, &master.slave(1, "h:2"));
    bench.register(2, &master.slave(0, "h:2"));
    assert_eq!(bench.addrs("T"), ["h:2"]);
    bench.ns.connection_closed(1, 0);
    assert_eq!(bench.addrs("T"), ["h:2"]);
}

#[test]
fn queues_follow_a_new_edition_only() {
    let mut bench = Bench::new();
    let mut sender = broker("b", "h:1", &["b", "T"]);
    bench.register(1, &sender);
    let wiped = bench.admin(code::WIPE_WRITE_PERM_OF_BROKER, &[("brokerName", "b")]);
    assert_eq!(wiped.get("wipeTopicCount"), Some("2"));
    assert_eq!(bench.perm("T"), 4);
    bench.register(1, &sender);
    assert_eq!(bench.perm("T"), 4, "the edition is the one already known");
    sender.version.next(5);
    bench.register(1, &sender);
    assert_eq!(bench.perm("T"), 6);
    bench.admin(code::WIPE_WRITE_PERM_OF_BROKER, &[("brokerName", "b")]);
    let added = bench.admin(code::ADD_WRITE_PERM_OF_BROKER, &[("brokerName", "b")]);
    assert_eq!(added.get("addTopicCount"), Some("2"));
    assert_eq!(bench.perm("T"), 6);
}

#[test]
fn a_broker_asks_whether_its_edition_is_known() {
    let mut bench = Bench::new();
    let sender = broker("b", "h:1", &["b", "T"]);
    let version = serde_json::to_vec(&sender.version).unwrap();
    let query = sender
        .request(code::QUERY_DATA_VERSION)
        .with_body(version.clone());
    let unknown = bench.ask(1, &query);
    assert_eq!(
        (unknown.get("changed"), unknown.body.len()),
        (Some("true"), 0)
    );
    bench.register(1, &sender);
    let known = bench.ask(1, &query);
    assert_eq!(
        (known.get("changed"), &known.body[..]),
        (Some("false"), &version[..])
    );
    let other = query.with_body(r#"{"counter":7}"#);
    assert_eq!(bench.ask(1, &other).get("changed"), Some("true"));
    assert_eq!(bench.ask(1, &other.with_body("x")).code, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Register {
        broker: usize,
        conn: u64,
        topics: usize,
    },
    Unregister {
        broker: usize,
        conn: u64,
    },
    Close(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3usize, 0..4u64, 1..4usize)
            .prop_map(|(broker, conn, topics)| Step::Register { broker, conn, topics }),
        1 => (0..3usize, 0..4u64).prop_map(|(broker, conn)| Step::Unregister { broker, conn }),
        1 => (0..4u64).prop_map(Step::Close),
        1 => (0..130_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens in whatever order: each listed topic has a route, each
    /// address in it is that of a registered broker, and nothing is left when
    /// nobody is.
    #[test]
    fn tables_agree_at_all_times(steps in prop::collection::vec(step(), 0..40)) {
        let brokers = [
            broker("a", "h:1", &[]),
            broker("b", "h:2", &[]),
            broker("b", "h:3", &[]).slave(1, "h:3"),
        ];
        let names = ["x", "y", "a", "b"];
        let mut bench = Bench::new();
        for step in steps {
            match step {
                Step::Register { broker, conn, topics } => {
                    let listing = brokers[broker].listing(&names[..topics + 1]);
                    bench.ask(conn, &listing.registration());
                }
                Step::Unregister { broker, conn } => {
                    bench.ask(conn, &brokers[broker].request(code::UNREGISTER_BROKER));
                }
                Step::Close(conn) => bench.ns.connection_closed(conn, bench.now_ms),
                Step::Wait(ms) => {
                    bench.now_ms += ms;
                    for conn in bench.ns.expire(bench.now_ms) {
                        bench.ns.connection_closed(conn, bench.now_ms);
                    }
                }
            }
            let mut addrs = std::collections::BTreeSet::new();
            for topic in bench.all_topics() {
                let found = bench.addrs(&topic);
                prop_assert!(!found.is_empty(), "{} has no route", topic);
                addrs.extend(found);
            }
            prop_assert!(addrs.len() <= bench.ns.broker_count());
        }
        bench.now_ms += 200_000;
        bench.ns.expire(bench.now_ms);
        prop_assert_eq!((bench.ns.broker_count(), bench.ns.topic_count()), (0, 0));
    }
}
