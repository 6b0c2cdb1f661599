//! Locks on queues for ordered consumption (`LockBatchRequestBody`,
//! `UnlockBatchRequestBody`, `LockBatchResponseBody`).

use serde::{Deserialize, Serialize};

use super::json::{MessageQueue, null_as_default};

/// The body of LOCK_BATCH_MQ and of UNLOCK_BATCH_MQ.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockBatchBody {
    /// Consumer group.
    #[serde(deserialize_with = "null_as_default")]
    pub consumer_group: String,
    /// The client that locks.
    #[serde(deserialize_with = "null_as_default")]
    pub client_id: String,
    /// Whether replicas are not to be asked.
    #[serde(deserialize_with = "null_as_default")]
    pub only_this_broker: bool,
    /// The queues.
    #[serde(deserialize_with = "null_as_default")]
    pub mq_set: Vec<MessageQueue>,
}

/// The answer to LOCK_BATCH_MQ.
#[derive(Clone, Debug, Serialize)]
pub struct LockBatchAnswer<'a> {
    /// The queues that the client holds now.
    #[serde(rename = "lockOKMQSet")]
    pub locked: &'a [MessageQueue],
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn locked_queues_come_back_as_they_were_named() {
        let text = br#"{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"b","queueId":3}],"onlyThisBroker":false}"#;
        let body: LockBatchBody = json::parse(text).unwrap();
        let answer = LockBatchAnswer {
            locked: &body.mq_set,
        };
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"lockOKMQSet":[{"brokerName":"b","queueId":3,"topic":"T"}]}"#
        );
    }
}
