use super::*;
use crate::broker::control::Control;
use crate::broker::control::settings::ControlSettings;
use crate::broker::control::view::Effects;
use crate::shard::ShardId;
use crate::wire::body::heartbeat::{HeartbeatData, MessageModel, ProducerData, SubscriptionData};
use crate::wire::command::Response;

const NOW: u64 = 1_700_000_000_000;

fn conn(slot: u32) -> ConnId {
    ConnId {
        shard: ShardId(0),
        slot,
        generation: 0,
    }
}

fn client(slot: u32, now_ms: u64) -> Client {
    Client {
        conn: conn(slot),
        addr: ([10, 0, 0, 1], 5000 + slot as u16).into(),
        client_id: "".into(),
        language: 0,
        version: 479,
        last_update_ms: now_ms,
    }
}

fn consumer(group: &str, subscriptions: &[(&str, &str, i64)]) -> ConsumerData {
    let subscriptions = subscriptions.iter();
    ConsumerData {
        group_name: group.to_owned(),
        subscription_data_set: subscriptions
            .map(|&(topic, expression, version)| {
                SubscriptionData::new(topic, expression, "", version)
            })
            .collect(),
        ..ConsumerData::default()
    }
}

struct Bench {
    control: Control,
    settings: ControlSettings,
    now: u64,
}

impl Bench {
    fn new() -> Bench {
        let settings = ControlSettings::default();
        Bench {
            control: Control::new(&settings),
            settings,
            now: NOW,
        }
    }

    fn beat(&mut self, slot: u32, id: &str, consumers: Vec<ConsumerData>) -> (Response, Effects) {
        let data = HeartbeatData {
            client_id: id.to_owned(),
            consumer_data_set: consumers,
            ..HeartbeatData::default()
        };
        self.control
            .heartbeat(&data, client(slot, self.now), &self.settings)
    }

    fn beat_v2(&mut self, slot: u32, fingerprint: i32, data: ConsumerData) -> (bool, Effects) {
        let data = HeartbeatData {
            client_id: "c".to_owned(),
            heartbeat_fingerprint: fingerprint,
            without_sub: data.subscription_data_set.is_empty(),
            consumer_data_set: vec![data],
            ..HeartbeatData::default()
        };
        let client = client(slot, self.now);
        let (response, effects) = self.control.heartbeat(&data, client, &self.settings);
        assert_eq!(response.get("IS_SUPPORT_HEART_BEAT_V2"), Some("true"));
        (response.get("IS_SUB_CHANGE") == Some("true"), effects)
    }

    fn ids(&self, group: &str) -> Vec<&str> {
        let group = self.control.clients.consumer_group(group);
        group
            .map(|group| group.client_ids().collect())
            .unwrap_or_default()
    }

    fn topics(&self, group: &str) -> Vec<&str> {
        let group = self.control.clients.consumer_group(group).unwrap();
        group
            .subscriptions()
            .map(|data| data.topic.as_str())
            .collect()
    }
}

fn notified(effects: &Effects) -> Vec<(&str, Vec<u32>)> {
    let slots = |members: &[ConnId]| members.iter().map(|conn| conn.slot).collect();
    effects
        .notify
        .iter()
        .map(|(group, members)| (group.as_str(), slots(members)))
        .collect()
}

#[test]
fn a_new_member_makes_its_group_its_retry_topic_and_is_told_to_all() {
    let mut bench = Bench::new();
    let (response, effects) = bench.beat(1, "a", vec![consumer("g", &[("T", "*", 1)])]);
    assert_eq!(
        (response.code, response.get("IS_SUB_CHANGE")),
        (0, Some("true"))
    );
    assert_eq!(effects.topics[0].topic_name, "%RETRY%g");
    assert_eq!(notified(&effects), [("g", vec![1])]);
    let view = effects.groups[0].view.as_ref().unwrap();
    assert_eq!(
        view.live.as_ref().unwrap().subscriptions["T"].sub_version,
        1
    );

    let (_, effects) = bench.beat(2, "b", vec![consumer("g", &[("T", "*", 1)])]);
    assert_eq!(notified(&effects), [("g", vec![1, 2])]);
    assert!(effects.topics.is_empty() && effects.groups.is_empty());
    assert_eq!(bench.ids("g"), ["a", "b"]);

    let (_, effects) = bench.beat(1, "a", vec![consumer("g", &[("T", "*", 1)])]);
    assert!(effects.notify.is_empty() && effects.groups.is_empty());
}

#[test]
fn of_each_topic_the_newest_subscription_counts_and_topics_not_named_go() {
    let mut bench = Bench::new();
    let _ = bench.beat(1, "a", vec![consumer("g", &[("T", "x", 5), ("U", "*", 5)])]);
    let (_, effects) = bench.beat(
        1,
        "a",
        vec![consumer("g", &[("T", "old", 4), ("U", "*", 5)])],
    );
    assert!(effects.groups.is_empty());
    let (_, effects) = bench.beat(
        1,
        "a",
        vec![consumer("g", &[("T", "new", 6), ("U", "*", 5)])],
    );
    let live = effects.groups[0]
        .view
        .as_ref()
        .unwrap()
        .live
        .clone()
        .unwrap();
    assert_eq!(live.subscriptions["T"].sub_string, "new");
    assert!(effects.notify.is_empty(), "the topics are the same");
    let (_, effects) = bench.beat(1, "a", vec![consumer("g", &[("T", "new", 6)])]);
    assert_eq!(bench.topics("g"), ["T"]);
    assert_eq!(effects.notify.len(), 1);
}

#[test]
fn broadcast_groups_and_groups_that_want_none_are_not_notified() {
    let mut bench = Bench::new();
    let mut all = consumer("g", &[("T", "*", 1)]);
    all.message_model = MessageModel::Broadcasting;
    let (_, effects) = bench.beat(1, "a", vec![all]);
    assert!(effects.notify.is_empty() && effects.groups.len() == 1);
    bench.settings.notify_consumers = false;
    let (_, effects) = bench.beat(1, "a", vec![consumer("h", &[("T", "*", 1)])]);
    assert!(effects.notify.is_empty());
}

#[test]
fn a_group_that_may_not_be_made_is_passed_over() {
    let mut bench = Bench::new();
    bench.settings.auto_create_group = false;
    let beat = vec![
        consumer("g", &[("T", "*", 1)]),
        consumer("TOOLS_CONSUMER", &[("T", "*", 1)]),
    ];
    let (response, effects) = bench.beat(1, "a", beat);
    assert_eq!(response.code, 0);
    assert_eq!(effects.topics.len(), 1);
    assert!(bench.ids("g").is_empty() && bench.ids("TOOLS_CONSUMER") == ["a"]);
}

#[test]
fn each_group_expires_on_its_own() {
    let mut bench = Bench::new();
    let both = || {
        vec![
            consumer("a", &[("T", "*", 1)]),
            consumer("b", &[("T", "*", 1)]),
        ]
    };
    let _ = bench.beat(1, "x", both());
    let _ = bench.beat(2, "y", both());
    bench.now += 100_000;
    let _ = bench.beat(1, "x", both());
    let _ = bench.beat(2, "y", vec![consumer("a", &[("T", "*", 1)])]);
    bench.now += 30_000;
    let effects = bench.control.expire(&bench.settings, bench.now);
    assert_eq!(notified(&effects), [("b", vec![1])]);
    assert_eq!(
        (bench.ids("a"), bench.ids("b")),
        (vec!["x", "y"], vec!["x"])
    );
    bench.now += 120_001;
    let effects = bench.control.expire(&bench.settings, bench.now);
    assert_eq!(effects.groups.len(), 2);
    assert!(
        effects
            .groups
            .iter()
            .all(|g| g.view.as_ref().unwrap().live.is_none())
    );
}

#[test]
fn a_closed_connection_leaves_all_its_groups() {
    let mut bench = Bench::new();
    let both = || {
        vec![
            consumer("a", &[("T", "*", 1)]),
            consumer("b", &[("T", "*", 1)]),
        ]
    };
    let _ = bench.beat(1, "x", both());
    let _ = bench.beat(2, "y", both());
    let effects = bench.control.connection_closed(conn(1), &bench.settings);
    assert_eq!(notified(&effects), [("a", vec![2]), ("b", vec![2])]);
    let effects = bench
        .control
        .unregister(conn(2), None, Some("a"), &bench.settings);
    assert!(effects.groups[0].view.as_ref().unwrap().live.is_none());
    assert!(bench.ids("a").is_empty() && bench.ids("b") == ["y"]);
    let effects = bench.control.connection_closed(conn(1), &bench.settings);
    assert!(effects.groups.is_empty() && effects.notify.is_empty());
}

#[test]
fn a_client_counts_once_however_many_connections_it_has() {
    let mut bench = Bench::new();
    let beat = || vec![consumer("g", &[("T", "*", 1)])];
    let _ = bench.beat(1, "a", beat());
    bench.now += 1;
    let (_, effects) = bench.beat(2, "a", beat());
    assert!(effects.warnings.is_empty(), "it may have reconnected");
    assert_eq!(bench.ids("g"), ["a"]);
    let (_, effects) = bench.beat(1, "a", beat());
    assert!(matches!(effects.warnings[0], Warning::SameClientId { .. }));
    let (_, effects) = bench.beat(1, "a", beat());
    assert!(effects.warnings.is_empty(), "once is enough");
    let mut changes = Changes::default();
    bench.control.clients.close(conn(1), &mut changes);
    assert!(changes.gone.is_empty() && bench.ids("g") == ["a"]);
    bench.control.clients.close(conn(2), &mut changes);
    assert_eq!(changes.gone, [("g".to_owned(), "a".into())]);
}

#[test]
fn differing_subscriptions_are_reported_once_with_their_difference() {
    let mut bench = Bench::new();
    let _ = bench.beat(1, "a", vec![consumer("g", &[("T", "x||y", 1)])]);
    let (_, effects) = bench.beat(2, "b", vec![consumer("g", &[("T", "y || x", 2)])]);
    assert!(effects.warnings.is_empty());
    let (_, effects) = bench.beat(2, "b", vec![consumer("g", &[("T", "z", 3)])]);
    let text = effects.warnings[0].to_string();
    assert!(text.contains(r#"b wants "z", a wants "x||y""#), "{text}");
    let (_, effects) = bench.beat(1, "a", vec![consumer("g", &[("T", "x||y", 1)])]);
    assert!(effects.warnings.is_empty());
    let (_, effects) = bench.beat(2, "b", vec![consumer("g", &[("T", "w", 4)])]);
    assert!(effects.warnings.is_empty());
}

#[test]
fn heartbeats_without_subscriptions_keep_those_that_are_known() {
    let mut bench = Bench::new();
    let full = || consumer("g", &[("T", "*", 1)]);
    let (resend, _) = bench.beat_v2(1, 7, full());
    assert!(!resend);
    let (resend, effects) = bench.beat_v2(1, 7, consumer("g", &[]));
    assert!(!resend && effects.groups.is_empty() && bench.topics("g") == ["T"]);
    let (resend, _) = bench.beat_v2(1, 8, consumer("g", &[]));
    assert!(resend, "the subscriptions changed");
    let (resend, _) = bench.beat_v2(1, 9, consumer("fresh", &[]));
    assert!(resend, "there is nothing to keep after a restart");
}

#[test]
fn bounds_refuse_what_is_too_much_and_keep_the_rest() {
    let mut bench = Bench::new();
    for id in ["", &"x".repeat(CLIENT_ID_BYTES_MAX + 1)] {
        let (response, _) = bench.beat(1, id, vec![consumer("g", &[("T", "*", 1)])]);
        assert_eq!(response.code, 1);
        assert!(bench.ids("g").is_empty());
    }
    let huge = "x".repeat(EXPRESSION_BYTES_MAX + 1);
    let beat = vec![
        consumer("bad", &[("T", &huge, 1)]),
        consumer("good", &[("T", "*", 1)]),
    ];
    let (response, _) = bench.beat(1, "a", beat);
    assert_eq!(response.code, 1);
    assert!(bench.ids("bad").is_empty() && bench.ids("good") == ["a"]);
    let producers = (0..GROUPS_PER_CONNECTION_MAX + 5).map(|n| ProducerData {
        group_name: n.to_string(),
    });
    let data = HeartbeatData {
        client_id: "p".to_owned(),
        producer_data_set: producers.collect(),
        ..HeartbeatData::default()
    };
    let (response, _) = bench
        .control
        .heartbeat(&data, client(9, NOW), &bench.settings);
    assert!(response.remark.unwrap().contains("4096"));
    let groups = bench.control.clients.producer_groups().count();
    assert_eq!(groups, GROUPS_PER_CONNECTION_MAX);
    let _ = bench.control.connection_closed(conn(9), &bench.settings);
    assert_eq!(bench.control.clients.producer_groups().count(), 0);
}

#[test]
fn producers_come_and_go() {
    let mut bench = Bench::new();
    let mut clients = std::mem::take(&mut bench.control.clients);
    clients.producer("p", &client(1, NOW)).unwrap();
    clients.producer("p", &client(2, NOW + 100_000)).unwrap();
    clients.expire(NOW + 130_000, 120_000, &mut Changes::default());
    let members: Vec<u32> = clients
        .producer_group("p")
        .unwrap()
        .map(|c| c.conn.slot)
        .collect();
    assert_eq!(members, [2]);
    clients.leave_producer("p", conn(2));
    assert!(clients.producer_group("p").is_none());
    assert!(clients.producer("", &client(1, NOW)).is_err());
}

#[test]
fn a_connection_that_changes_its_client_id_is_one_member() {
    let mut bench = Bench::new();
    let beat = || vec![consumer("g", &[("T", "*", 1)])];
    let _ = bench.beat(1, "a", beat());
    let (_, effects) = bench.beat(1, "b", beat());
    assert_eq!((bench.ids("g"), effects.notify.len()), (vec!["b"], 1));
}
