use super::*;
use serde_json::Value;

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

    fn update(&mut self, request: &Request) -> Result<Vec<String>, i32> {
        let done = update(&mut self.control, request, &self.settings, NOW);
        names(done)
    }

    fn update_list(&mut self, body: &str) -> Result<Vec<String>, i32> {
        let request = Request::new(18).with_body(body.to_owned());
        names(update_list(
            &mut self.control,
            &request,
            &self.settings,
            NOW,
        ))
    }
}

fn names(done: Result<Effects, Response>) -> Result<Vec<String>, i32> {
    match done {
        Ok(effects) => Ok(effects
            .topics
            .iter()
            .map(|t| t.topic_name.clone())
            .collect()),
        Err(refused) => Err(refused.code),
    }
}

fn create(topic: &str) -> Request {
    Request::new(17)
        .with("topic", topic)
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", 3)
        .with("writeQueueNums", 2)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG")
        .with("order", "false")
}

#[test]
fn a_topic_is_made_once_and_told_to_nameservers_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.update(&create("T")).unwrap(), ["T"]);
    assert!(bench.update(&create("T")).unwrap().is_empty());
    let changed = create("T").with("attributes", "+message.type=FIFO");
    assert_eq!(bench.update(&changed).unwrap(), ["T"]);
    let answer = get(&bench.control, &Request::new(351).with("topic", "T")).unwrap();
    let topic: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(topic["attributes"]["message.type"], "FIFO");
    assert_eq!(
        (
            topic["readQueueNums"].as_i64(),
            topic["topicFilterType"].as_str()
        ),
        (Some(3), Some("SINGLE_TAG"))
    );
}

#[test]
fn refusals_have_the_codes_that_tools_know() {
    let mut bench = Bench::new();
    assert_eq!(bench.update(&create("a/b")), Err(29));
    assert_eq!(bench.update(&create("TBW102")), Err(29));
    assert_eq!(
        bench.update(&create("T").with("attributes", "+message.type=MIXED")),
        Err(29)
    );
    assert_eq!(
        bench.update(&create("T").with("attributes", "colour")),
        Err(1)
    );
    assert_eq!(bench.update(&create("T").with("perm", "x")), Err(1));
    assert_eq!(bench.update(&Request::new(17).with("topic", "T")), Err(1));
    let missing = get(&bench.control, &Request::new(351).with("topic", "T"));
    assert_eq!(missing.unwrap_err().code, 17);
    assert!(!bench.control.topics.take_dirty());
}

#[test]
fn a_list_is_taken_whole_or_not_at_all() {
    let mut bench = Bench::new();
    let list =
        r#"{"topicConfigList":[{"topicName":"a","readQueueNums":2},{"topicName":"TBW102"}]}"#;
    assert_eq!(bench.update_list(list), Err(29));
    assert!(bench.control.topics.get("a").is_none());
    let list = list.replace("TBW102", "b");
    assert_eq!(bench.update_list(&list).unwrap(), ["a", "b"]);
    assert!(bench.update_list(&list).unwrap().is_empty());
    assert_eq!(bench.control.topics.get("a").unwrap().read_queue_nums, 2);
}

#[test]
fn figures_are_told_of_every_queue_that_a_topic_has() {
    let settings = ControlSettings::default();
    let config = TopicConfig {
        write_queue_nums: 3,
        ..TopicConfig::new("T", 2, 6)
    };
    let queues = [QueueInfo {
        queue: 1,
        min: 4,
        max: 9,
        last_timestamp: 77,
    }];
    let table = stats_table(&config, &queues, &settings).offset_table;
    let offsets: Vec<_> = table
        .values()
        .map(|o| (o.min_offset, o.max_offset))
        .collect();
    assert_eq!(offsets, [(0, 0), (4, 9), (0, 0)]);
    assert!(table.keys().all(|queue| queue.broker_name == "broker-a"));
}

#[test]
fn lists_have_the_shape_that_tools_read() {
    let bench = Bench::new();
    let answer = system_list(&bench.control).unwrap();
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    let topics = list["topicList"].as_array().unwrap();
    assert!(
        topics
            .iter()
            .any(|topic| topic == "DefaultCluster_REPLY_TOPIC")
    );
    let answer = all(&bench.control, &Request::new(21)).unwrap();
    let total = bench.control.topics.len().to_string();
    assert_eq!(answer.get("totalTopicNum"), Some(total.as_str()));
}

#[test]
fn deleting_reaches_the_retry_topics_of_both_pop_versions() {
    assert_eq!(pop_retry_topics("g", "T"), ["%RETRY%g_T", "%RETRY%g+T"]);
}
