//! Requests as clients make them.

use ringmq::wire::command::Request;
use serde_json::json;

use super::{Client, Reply, now_ms};

/// A send of one message or a batch.
#[derive(Clone, Debug)]
pub struct Send {
    /// 10, 310 or 320.
    pub code: i32,
    pub topic: String,
    pub default_topic: String,
    pub default_queues: i32,
    pub queue: i32,
    pub sys_flag: i32,
    pub flag: i32,
    pub born: i64,
    pub properties: String,
    pub reconsume_times: i32,
    pub max_reconsume_times: Option<i32>,
    pub batch: bool,
    pub body: Vec<u8>,
}

impl Send {
    pub fn new(topic: &str, body: impl Into<Vec<u8>>) -> Send {
        Send {
            code: 310,
            topic: topic.to_owned(),
            default_topic: "TBW102".to_owned(),
            default_queues: 4,
            queue: 0,
            sys_flag: 0,
            flag: 0,
            born: now_ms(),
            properties: String::new(),
            reconsume_times: 0,
            max_reconsume_times: None,
            batch: false,
            body: body.into(),
        }
    }

    /// A batch of messages without properties.
    pub fn batch<B: AsRef<[u8]>>(topic: &str, bodies: &[B]) -> Send {
        let items = bodies.iter().flat_map(|body| batch_item(body.as_ref(), ""));
        let mut send = Send::new(topic, items.collect::<Vec<u8>>());
        (send.code, send.batch) = (320, true);
        send
    }

    pub fn queue(mut self, queue: i32) -> Send {
        self.queue = queue;
        self
    }

    pub fn code(mut self, code: i32) -> Send {
        self.code = code;
        self
    }

    pub fn property(mut self, name: &str, value: &str) -> Send {
        self.properties += &format!("{name}\u{1}{value}\u{2}");
        self
    }

    pub fn tag(self, tag: &str) -> Send {
        self.property("TAGS", tag)
    }

    /// The fields with their long names and their letters.
    fn fields(&self) -> Vec<(&'static str, &'static str, String)> {
        let mut fields = vec![
            ("producerGroup", "a", "producers".to_owned()),
            ("topic", "b", self.topic.clone()),
            ("defaultTopic", "c", self.default_topic.clone()),
            (
                "defaultTopicQueueNums",
                "d",
                self.default_queues.to_string(),
            ),
            ("queueId", "e", self.queue.to_string()),
            ("sysFlag", "f", self.sys_flag.to_string()),
            ("bornTimestamp", "g", self.born.to_string()),
            ("flag", "h", self.flag.to_string()),
            ("properties", "i", self.properties.clone()),
            ("reconsumeTimes", "j", self.reconsume_times.to_string()),
            ("unitMode", "k", "false".to_owned()),
            ("batch", "m", self.batch.to_string()),
        ];
        if let Some(max) = self.max_reconsume_times {
            fields.push(("maxReconsumeTimes", "l", max.to_string()));
        }
        fields
    }

    /// The request without the field of this letter.
    pub fn without(&self, letter: &str) -> Request {
        let mut request = Request::new(self.code).with_body(self.body.clone());
        for (name, short, value) in self.fields() {
            if short != letter {
                request = request.with(if self.code == 10 { name } else { short }, value);
            }
        }
        request
    }

    /// The request with another value for the field of this letter.
    pub fn with(&self, letter: &str, value: &str) -> Request {
        let fields = self.fields();
        let (name, ..) = *fields
            .iter()
            .find(|(_, short, _)| *short == letter)
            .expect("a field");
        self.without(letter)
            .with(if self.code == 10 { name } else { letter }, value)
    }
}

impl From<Send> for Request {
    fn from(send: Send) -> Request {
        send.without("")
    }
}

/// One message of a batch body.
pub fn batch_item(body: &[u8], properties: &str) -> Vec<u8> {
    let mut item = Vec::new();
    item.extend_from_slice(&((22 + body.len() + properties.len()) as i32).to_be_bytes());
    item.extend_from_slice(&[0; 12]);
    item.extend_from_slice(&(body.len() as i32).to_be_bytes());
    item.extend_from_slice(body);
    item.extend_from_slice(&(properties.len() as i16).to_be_bytes());
    item.extend_from_slice(properties.as_bytes());
    item
}

/// A pull. Brings its own subscription unless told otherwise.
#[derive(Clone, Debug)]
pub struct Pull {
    /// 11 or 361.
    pub code: i32,
    pub group: String,
    pub topic: String,
    pub queue: i32,
    pub offset: i64,
    pub max: i32,
    pub suspend_ms: Option<i64>,
    pub commit: Option<i64>,
    pub subscription: Option<String>,
    pub sub_version: i64,
    pub expression_type: String,
}

impl Pull {
    pub fn new(topic: &str, queue: i32, offset: i64) -> Pull {
        Pull {
            code: 11,
            group: "pullers".to_owned(),
            topic: topic.to_owned(),
            queue,
            offset,
            max: 32,
            suspend_ms: None,
            commit: None,
            subscription: Some("*".to_owned()),
            sub_version: 0,
            expression_type: "TAG".to_owned(),
        }
    }

    pub fn group(mut self, group: &str) -> Pull {
        self.group = group.to_owned();
        self
    }

    /// Waits this long where there is nothing.
    pub fn suspend(mut self, ms: i64) -> Pull {
        self.suspend_ms = Some(ms);
        self
    }

    pub fn tags(mut self, expression: &str) -> Pull {
        self.subscription = Some(expression.to_owned());
        self
    }

    /// By what its group has subscribed.
    pub fn subscribed(mut self, version: i64) -> Pull {
        (self.subscription, self.sub_version) = (None, version);
        self
    }

    pub fn max(mut self, max: i32) -> Pull {
        self.max = max;
        self
    }

    /// Commits an offset on the way.
    pub fn commit(mut self, offset: i64) -> Pull {
        self.commit = Some(offset);
        self
    }
}

impl From<Pull> for Request {
    fn from(pull: Pull) -> Request {
        let flag = i32::from(pull.commit.is_some())
            | i32::from(pull.suspend_ms.is_some()) << 1
            | i32::from(pull.subscription.is_some()) << 2;
        let request = Request::new(pull.code)
            .with("consumerGroup", &pull.group)
            .with("topic", &pull.topic)
            .with("queueId", pull.queue)
            .with("queueOffset", pull.offset)
            .with("maxMsgNums", pull.max)
            .with("sysFlag", flag)
            .with("commitOffset", pull.commit.unwrap_or(0))
            .with("suspendTimeoutMillis", pull.suspend_ms.unwrap_or(0))
            .with("subVersion", pull.sub_version)
            .with("expressionType", &pull.expression_type);
        match &pull.subscription {
            Some(expression) => request.with("subscription", expression),
            None => request,
        }
    }
}

/// Makes a topic.
#[track_caller]
pub fn topic(client: &mut Client, topic: &str, queues: i32) {
    let request = Request::new(17)
        .with("topic", topic)
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", queues)
        .with("writeQueueNums", queues)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG")
        .with("topicSysFlag", 0)
        .with("order", false);
    client.call(request).expect(0);
}

/// A request about one queue.
pub fn queue_offset(code: i32, topic: &str, queue: i32) -> Request {
    Request::new(code)
        .with("topic", topic)
        .with("queueId", queue)
}

#[track_caller]
pub fn max_offset(client: &mut Client, topic: &str, queue: i32) -> i64 {
    client
        .call(queue_offset(30, topic, queue))
        .expect(0)
        .int("offset")
}

#[track_caller]
pub fn min_offset(client: &mut Client, topic: &str, queue: i32) -> i64 {
    client
        .call(queue_offset(31, topic, queue))
        .expect(0)
        .int("offset")
}

/// UPDATE_CONSUMER_OFFSET.
pub fn commit(group: &str, topic: &str, queue: i32, offset: i64) -> Request {
    queue_offset(15, topic, queue)
        .with("consumerGroup", group)
        .with("commitOffset", offset)
}

/// QUERY_CONSUMER_OFFSET: the answer, code 22 where there is none.
#[track_caller]
pub fn committed(client: &mut Client, group: &str, topic: &str, queue: i32) -> Reply {
    let request = queue_offset(14, topic, queue)
        .with("consumerGroup", group)
        .with("setZeroIfNotFound", false);
    client.call(request)
}

/// A consumer as its heartbeat tells of it.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub client_id: String,
    pub group: String,
    pub topic: String,
    pub expression: String,
    pub version: i64,
    pub model: &'static str,
}

impl Consumer {
    pub fn new(client_id: &str, group: &str, topic: &str) -> Consumer {
        Consumer {
            client_id: client_id.to_owned(),
            group: group.to_owned(),
            topic: topic.to_owned(),
            expression: "*".to_owned(),
            version: 1,
            model: "CLUSTERING",
        }
    }
}

/// The heartbeat of a consumer.
pub fn heartbeat(consumer: &Consumer) -> Request {
    let body = json!({
        "clientID": consumer.client_id,
        "heartbeatFingerprint": 0,
        "withoutSub": false,
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        "consumerDataSet": [{
            "groupName": consumer.group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": consumer.model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": false,
            "subscriptionDataSet": [{
                "classFilterMode": false, "topic": consumer.topic,
                "subString": consumer.expression, "tagsSet": [], "codeSet": [],
                "subVersion": consumer.version, "expressionType": "TAG",
            }],
        }],
    });
    Request::new(34).with_body(body.to_string())
}
