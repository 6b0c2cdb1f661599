use super::*;

const NOW: u64 = 1_700_000_000_000;

fn table(settings: &ControlSettings) -> TopicTable {
    TopicTable::new(settings)
}

fn send(
    table: &mut TopicTable,
    topic: &str,
    template: &str,
    settings: &ControlSettings,
) -> Result<Topic, TopicError> {
    table.get_or_create(topic, template, 4, 0, settings, NOW)
}

#[test]
fn a_send_creates_its_topic_once() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    let made = send(&mut topics, "orders", "TBW102", &settings).unwrap();
    assert!(made.changed && topics.take_dirty() && topics.version().counter == 1);
    assert_eq!((made.config.read_queue_nums, made.config.perm), (4, 6));
    let again = send(&mut topics, "orders", "TBW102", &settings).unwrap();
    assert!(!again.changed && !topics.take_dirty() && topics.version().counter == 1);
}

#[test]
fn a_send_gets_no_more_queues_than_the_template_has() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    let mut create = |name: &str, queues| {
        let topic = topics.get_or_create(name, "TBW102", queues, 0, &settings, NOW);
        topic.unwrap().config.write_queue_nums
    };
    assert_eq!(create("many", 1000), 8);
    assert_eq!(create("none", -5), 0);
}

#[test]
fn no_template_gets_around_auto_create_being_off() {
    let settings = ControlSettings {
        auto_create_topic: false,
        ..ControlSettings::default()
    };
    let mut topics = table(&settings);
    assert!(topics.get("TBW102").is_none());
    for template in ["TBW102", "DefaultCluster", "broker-a"] {
        let refused = send(&mut topics, "orders", template, &settings);
        assert_eq!(refused.unwrap_err(), TopicError::AutoCreateOff);
    }
    // The switch also counts where the template is still there.
    let mut topics = table(&ControlSettings::default());
    assert!(send(&mut topics, "orders", "TBW102", &settings).is_err());
    assert!(!topics.take_dirty());
}

#[test]
fn a_send_creates_nothing_that_is_no_topic() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    let before = topics.len();
    for name in [
        "../../../fuzz2019",
        "a\0",
        "rmq_sys_mine",
        &"x".repeat(10_000),
    ] {
        assert!(send(&mut topics, name, "TBW102", &settings).is_err());
    }
    let settings = ControlSettings::default();
    let refused = send(&mut topics, "t", "BenchmarkTest", &settings).unwrap_err();
    assert_eq!(refused, TopicError::NotInherited);
    let refused = send(&mut topics, "t", "nowhere", &settings).unwrap_err();
    assert_eq!(refused, TopicError::NoTemplate);
    assert_eq!(topics.len(), before);
}

#[test]
fn the_same_settings_again_have_no_effect() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    let mut config = TopicConfig::new("T", 3, 6);
    config
        .attributes
        .insert("+message.type".into(), "FIFO".into());
    assert!(
        topics
            .update(config.clone(), &settings, NOW)
            .unwrap()
            .changed
    );
    let version = topics.version();
    assert!(
        !topics
            .update(config.clone(), &settings, NOW)
            .unwrap()
            .changed
    );
    assert_eq!(topics.version(), version);
    config.perm = 4;
    assert!(topics.update(config, &settings, NOW).unwrap().changed);
    let topic = topics.get("T").unwrap();
    assert_eq!(
        (topic.perm, topic.attributes["message.type"].as_str()),
        (4, "FIFO")
    );
}

#[test]
fn administrators_cannot_touch_system_topics_nor_ask_for_nonsense() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    let mut code = |name: &str, queues, perm| {
        let topic = topics.update(TopicConfig::new(name, queues, perm), &settings, NOW);
        topic.unwrap_err().admin_code()
    };
    for name in [
        "TBW102",
        "DefaultCluster",
        "broker-a",
        "rmq_sys_x",
        "a/b",
        "",
    ] {
        assert_eq!(code(name, 4, 6), response::INVALID_PARAMETER, "{name}");
    }
    assert_eq!(code("T", -1, 6), response::INVALID_PARAMETER);
    assert_eq!(code("T", i32::MAX, 6), response::INVALID_PARAMETER);
    assert_eq!(code("T", 4, 77), response::INVALID_PARAMETER);
    for topic in ["TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster"] {
        assert_eq!(topics.remove(topic, NOW).unwrap_err(), TopicError::System);
    }
    assert!(topics.remove(" ", NOW).is_err());
    assert!(topics.remove("never", NOW).unwrap().is_none());
    assert!(!topics.take_dirty());
}

#[test]
fn bad_attributes_are_an_error_and_mixed_needs_its_switch() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    let mut config = TopicConfig::new("T", 3, 6);
    config
        .attributes
        .insert("+message.type".into(), "MIXED".into());
    let refused = topics.update(config.clone(), &settings, NOW).unwrap_err();
    assert_eq!(
        (refused.clone(), refused.admin_code()),
        (TopicError::Mixed, 29)
    );
    config
        .attributes
        .insert("+message.type".into(), "BLUE".into());
    let refused = topics.update(config, &settings, NOW).unwrap_err();
    assert_eq!(refused.admin_code(), response::SYSTEM_ERROR);
}

#[test]
fn topics_are_what_they_were_after_a_restart() {
    let settings = ControlSettings::default();
    let mut topics = table(&settings);
    send(&mut topics, "orders", "TBW102", &settings).unwrap();
    let file = topics.to_json();
    let mut again = table(&settings);
    again.load(&file).unwrap();
    assert_eq!(again.to_json(), file);
    assert!(again.load(b"{broken").is_err());
    assert_eq!(again.to_json(), file);
}

#[test]
fn a_restart_without_auto_create_forgets_the_template() {
    let file = table(&ControlSettings::default()).to_json();
    let settings = ControlSettings {
        auto_create_topic: false,
        default_topic_queue_nums: 2,
        ..ControlSettings::default()
    };
    let mut topics = table(&settings);
    topics.load(&file).unwrap();
    assert!(topics.get("TBW102").is_none());
    assert_eq!(topics.get("BenchmarkTest").unwrap().write_queue_nums, 1024);
}

#[test]
fn the_template_follows_its_switch_at_run_time() {
    let on = ControlSettings::default();
    let off = ControlSettings {
        auto_create_topic: false,
        ..ControlSettings::default()
    };
    let mut topics = table(&on);
    assert!(topics.apply_auto_create(&on, NOW).is_none());
    assert_eq!(topics.apply_auto_create(&off, NOW).unwrap().perm, 6);
    assert!(topics.apply_auto_create(&off, NOW).is_none());
    assert_eq!(topics.apply_auto_create(&on, NOW).unwrap().perm, 7);
    assert!(table(&off).apply_auto_create(&off, NOW).is_none());
}

#[test]
fn all_topics_come_in_pages_of_the_shape_that_tools_read() {
    let settings = ControlSettings::default();
    let topics = table(&settings);
    let all: serde_json::Value = serde_json::from_slice(&topics.page(0, usize::MAX)).unwrap();
    assert_eq!(
        all["topicConfigTable"].as_object().unwrap().len(),
        topics.len()
    );
    assert!(all["mappingDataVersion"].is_object());
    assert!(
        all["topicQueueMappingDetailMap"]
            .as_object()
            .unwrap()
            .is_empty()
    );
    let page: serde_json::Value = serde_json::from_slice(&topics.page(2, 3)).unwrap();
    assert_eq!(page["topicConfigTable"].as_object().unwrap().len(), 3);
    let none: serde_json::Value = serde_json::from_slice(&topics.page(1000, 3)).unwrap();
    assert!(none["topicConfigTable"].as_object().unwrap().is_empty());
}
