//! QUERY_MESSAGE: messages found by a key. (`QueryMessageProcessor`)
//!
//! A topic's messages lie on any shard: all are asked, and their finds merged. The
//! index knows hashes and whole seconds, so each record is looked at before it is
//! an answer.

use bytes::Bytes;

use super::message::{Answer, Ask, ReplyTo};
use super::{BrokerShard, DEFERRED_MAX};
use crate::shard::Flow;
use crate::store::{KeyQuery, has_key, key_hash};
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};
use crate::wire::header::FieldError;
use crate::wire::message::Record;

/// Queries of one shard's connections that are under way. At the bound their
/// connections wait.
const QUERIES_MAX: usize = 8;

/// Most messages of an answer. (`maxMsgsNumBatch`)
const MESSAGES_MAX: usize = 64;

/// Messages of an answer about a unique key. (`defaultQueryMaxNum`)
const UNIQUE_MESSAGES_MAX: usize = 32;

/// Bytes after which an answer takes no more messages: clients take frames of 16 MiB.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Steps of a search in one shard's index.
const STEPS_MAX: usize = 2048;

/// The field that says that the key is a unique one. (`MixAll.UNIQUE_MSG_QUERY_FLAG`)
const UNIQUE_FLAG: &str = "_UNIQUE_KEY_QUERY";

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct MessageQuery {
    /// Topic.
    pub topic: String,
    /// A unique key, or one of its keys.
    pub key: String,
    /// Most messages wanted.
    pub max: usize,
    /// Earliest store time, ms since 1970.
    pub begin: i64,
    /// Latest store time.
    pub end: i64,
}

/// A message that a shard found.
#[derive(Debug)]
pub struct FoundMessage {
    /// When it was stored, ms since 1970.
    pub store_timestamp: i64,
    /// Where it lies.
    pub physical: i64,
    /// Its record.
    pub record: Bytes,
}

/// What a shard found.
#[derive(Debug, Default)]
pub struct KeyAnswer {
    /// Newest first.
    pub messages: Vec<FoundMessage>,
    /// Store time and physical offset of the newest message in its index.
    pub last_update: (i64, i64),
}

impl MessageQuery {
    fn parse(request: &Request) -> Result<MessageQuery, FieldError> {
        let max: i32 = request.int("maxNum")?;
        let asked = usize::try_from(max).unwrap_or(0).min(MESSAGES_MAX);
        let unique = request
            .get(UNIQUE_FLAG)
            .is_some_and(|flag| flag.eq_ignore_ascii_case("true"));
        // Tags are not indexed.
        let by_tag = request.get("indexType") == Some("T");
        Ok(MessageQuery {
            topic: request.str("topic")?.to_owned(),
            key: request.str("key")?.to_owned(),
            max: match (by_tag, unique) {
                (true, _) => 0,
                (_, true) => UNIQUE_MESSAGES_MAX,
                _ => asked,
            },
            begin: request.int("beginTimestamp")?,
            end: request.int("endTimestamp")?,
        })
    }

    fn wants(&self, record: &Record<'_>) -> bool {
        record.topic() == self.topic.as_bytes()
            && has_key(record.properties(), self.key.as_bytes())
            && (self.begin..=self.end).contains(&record.store_timestamp())
    }
}

impl BrokerShard {
    /// Answers a query, as a task.
    pub(super) fn query_message(&self, to: ReplyTo, request: &Request) -> Flow {
        let query = match MessageQuery::parse(request) {
            Ok(query) => query,
            Err(error) => {
                self.reply(&to, &error.into());
                return Flow::Continue;
            }
        };
        if self.queries.get() >= QUERIES_MAX || self.deferred.get() >= DEFERRED_MAX {
            return Flow::Later;
        }
        self.queries.set(self.queries.get() + 1);
        let me = self.rc();
        self.spawn_deferred(async move {
            let response = me.answer_query(&query).await;
            me.reply(&to, &response);
            let before = me.queries.get();
            me.queries.set(before - 1);
            if before == QUERIES_MAX {
                me.room.notify();
            }
        });
        Flow::Continue
    }

    async fn answer_query(&self, query: &MessageQuery) -> Response {
        let answers = self.ask_all(|| Ask::FindKey(query.clone())).await;
        let (mut messages, mut last_update) = (Vec::new(), (0, 0));
        for answer in answers {
            if let Answer::Found(found) = answer {
                messages.extend(found.messages);
                last_update = last_update.max(found.last_update);
            }
        }
        messages.sort_by_key(|found| std::cmp::Reverse((found.store_timestamp, found.physical)));
        let mut body = Vec::new();
        for found in messages.iter().take(query.max) {
            if !body.is_empty() && body.len() + found.record.len() > ANSWER_BYTES_MAX {
                break;
            }
            body.extend_from_slice(&found.record);
        }
        let response = if body.is_empty() {
            let why = if self.store.has_index() {
                "can not find message, maybe time range not correct"
            } else {
                "can not find message, messageIndexEnable is false"
            };
            Response::error(response::QUERY_NOT_FOUND, why)
        } else {
            Response::body(body)
        };
        response
            .with("indexLastUpdateTimestamp", last_update.0)
            .with("indexLastUpdatePhyoffset", last_update.1)
    }

    /// Finds the newest messages that a query wants in the log of this shard.
    pub(super) async fn find_key(&self, query: &MessageQuery) -> KeyAnswer {
        let mut answer = KeyAnswer {
            messages: Vec::new(),
            last_update: self.store.settle_index().await,
        };
        let step = KeyQuery {
            hash: key_hash(query.topic.as_bytes(), query.key.as_bytes()),
            begin: query.begin,
            end: query.end,
        };
        let (mut from, mut bytes) = (None, 0);
        for _ in 0..STEPS_MAX {
            if query.max == 0 {
                break;
            }
            let hits = self.store.find_key(step, from).await;
            for physical in hits.physical {
                let Some(record) = self.record_of(physical, query).await else {
                    continue;
                };
                bytes += record.record.len();
                answer.messages.push(record);
                if answer.messages.len() >= query.max || bytes > ANSWER_BYTES_MAX {
                    return answer;
                }
            }
            match hits.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        answer
    }

    async fn record_of(&self, physical: i64, query: &MessageQuery) -> Option<FoundMessage> {
        let loaded = self.load_record_at(physical).await.unwrap_or_else(|error| {
            tracing::warn!(physical, %error, "a message cannot be read");
            None
        });
        let bytes = loaded?;
        let record = Record::parse(&bytes).ok()?;
        let store_timestamp = record.store_timestamp();
        query.wants(&record).then(|| FoundMessage {
            store_timestamp,
            physical,
            record: bytes.into(),
        })
    }
}
