//! Groups: settings, members, how far they are.

use super::body::{ConsumerConnection, ConsumerStatus, ProducerConnection};
use super::{Admin, AdminError};
use crate::wire::body::json;
use crate::wire::body::stats::ConsumeStats;
use crate::wire::body::subscription_group::{SubscriptionGroupConfig, SubscriptionGroupWrapper};
use crate::wire::codes::{request, response};
use crate::wire::command::Request;
use std::collections::BTreeMap;

impl Admin {
    /// Makes a group on one broker, or changes it.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn update_group(
        &mut self,
        broker: &str,
        config: &SubscriptionGroupConfig,
    ) -> Result<(), AdminError> {
        let change = Request::new(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP);
        self.ask(broker, change.with_body(json::encode(config)))
            .map(drop)
            .map_err(|error| error.group(&config.group_name))
    }

    /// Makes or changes several groups on one broker at once.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn update_groups(
        &mut self,
        broker: &str,
        configs: &[SubscriptionGroupConfig],
    ) -> Result<(), AdminError> {
        let body = serde_json::json!({ "groupConfigList": configs });
        let change = Request::new(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST);
        self.ask(broker, change.with_body(json::encode(&body)))
            .map(drop)
    }

    /// Deletes a group from one broker, with `offsets` also how far it was.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn delete_group(
        &mut self,
        broker: &str,
        group: &str,
        offsets: bool,
    ) -> Result<(), AdminError> {
        let delete = Request::new(request::DELETE_SUBSCRIPTIONGROUP)
            .with("groupName", group)
            .with("cleanOffset", offsets);
        self.ask(broker, delete)
            .map(drop)
            .map_err(|error| error.group(group))
    }

    /// A group's settings on one broker.
    ///
    /// # Errors
    /// As [`Admin::ask`]; code 26 where it is not there.
    pub fn group_config(
        &mut self,
        broker: &str,
        group: &str,
    ) -> Result<SubscriptionGroupConfig, AdminError> {
        let ask = Request::new(request::GET_SUBSCRIPTIONGROUP_CONFIG).with("group", group);
        self.body_of(broker, ask)
            .map_err(|error| error.group(group))
    }

    /// The settings of all groups of one broker.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn group_configs(
        &mut self,
        broker: &str,
    ) -> Result<BTreeMap<String, SubscriptionGroupConfig>, AdminError> {
        let ask = Request::new(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG);
        let all: SubscriptionGroupWrapper = self.body_of(broker, ask)?;
        Ok(all.subscription_group_table)
    }

    /// How far a group is on one broker, in all its topics or in one.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn consume_stats(
        &mut self,
        broker: &str,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats, AdminError> {
        self.body_of(broker, consume_stats_request(group, topic))
            .map_err(|error| error.group(group))
    }

    /// How far several groups are on one broker, asked all at once. A group that the broker refuses
    /// to tell about is left out.
    ///
    /// # Errors
    /// As [`Admin::ask_all`].
    pub fn consume_stats_of(
        &mut self,
        broker: &str,
        groups: &[String],
    ) -> Result<Vec<(String, ConsumeStats)>, AdminError> {
        let requests = groups
            .iter()
            .map(|group| consume_stats_request(group, None));
        let answers = self.ask_all(broker, requests.collect())?;
        let mut found = Vec::new();
        for (group, answer) in groups.iter().zip(answers) {
            if answer.code == response::SUCCESS {
                let stats = super::read_body(broker, request::GET_CONSUME_STATS, &answer)?;
                found.push((group.clone(), stats));
            }
        }
        Ok(found)
    }

    /// The members of a group that are connected to one broker. One that nobody is connected of has
    /// none.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn consumer_connection(
        &mut self,
        broker: &str,
        group: &str,
    ) -> Result<ConsumerConnection, AdminError> {
        let ask = Request::new(request::GET_CONSUMER_CONNECTION_LIST).with("consumerGroup", group);
        match self.body_of(broker, ask) {
            Err(error) if error.code() == Some(response::CONSUMER_NOT_ONLINE) => {
                Ok(ConsumerConnection::default())
            }
            other => other.map_err(|error| error.group(group)),
        }
    }

    /// The members of several groups that are connected to one broker, asked all at once. A group
    /// that nobody is connected of, or that the broker refuses to tell about, is left out.
    ///
    /// # Errors
    /// As [`Admin::ask_all`].
    pub fn consumer_connections_of(
        &mut self,
        broker: &str,
        groups: &[String],
    ) -> Result<Vec<(String, ConsumerConnection)>, AdminError> {
        let code = request::GET_CONSUMER_CONNECTION_LIST;
        let requests = groups
            .iter()
            .map(|group| Request::new(code).with("consumerGroup", group));
        let answers = self.ask_all(broker, requests.collect())?;
        let mut found = Vec::new();
        for (group, answer) in groups.iter().zip(answers) {
            if answer.code == response::SUCCESS {
                found.push((group.clone(), super::read_body(broker, code, &answer)?));
            }
        }
        Ok(found)
    }

    /// The producers of a group that are connected to one broker. Brokers answer code 1 where there
    /// are none.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn producer_connection(
        &mut self,
        broker: &str,
        group: &str,
    ) -> Result<ProducerConnection, AdminError> {
        let ask = Request::new(request::GET_PRODUCER_CONNECTION_LIST).with("producerGroup", group);
        match self.body_of(broker, ask) {
            Err(error) if error.code() == Some(response::SYSTEM_ERROR) => {
                Ok(ProducerConnection::default())
            }
            other => other.map_err(|error| error.group(group)),
        }
    }

    /// What a member of a group says of itself, through a broker that it is connected to.
    ///
    /// # Errors
    /// As [`Admin::ask`]; code 1 where it is not connected, 207 where it does not answer in time.
    pub fn consumer_status(
        &mut self,
        broker: &str,
        group: &str,
        client_id: &str,
        jstack: bool,
    ) -> Result<ConsumerStatus, AdminError> {
        let ask = Request::new(request::GET_CONSUMER_RUNNING_INFO)
            .with("consumerGroup", group)
            .with("clientId", client_id)
            .with("jstackEnable", jstack);
        self.body_of(broker, ask)
            .map_err(|error| error.group(group))
    }

    /// Sets whether members of a group are given messages by `PULL` or by `POP`.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn set_consume_mode(
        &mut self,
        broker: &str,
        topic: &str,
        group: &str,
        mode: &str,
        pop_share_queues: i32,
    ) -> Result<(), AdminError> {
        let body = serde_json::json!({
            "topic": topic,
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": pop_share_queues,
        });
        let change = Request::new(request::SET_MESSAGE_REQUEST_MODE);
        self.ask(broker, change.with_body(json::encode(&body)))
            .map(drop)
            .map_err(|error| error.group(group).topic(topic))
    }
}

fn consume_stats_request(group: &str, topic: Option<&str>) -> Request {
    let ask = Request::new(request::GET_CONSUME_STATS).with("consumerGroup", group);
    match topic {
        Some(topic) => ask.with("topic", topic),
        None => ask,
    }
}
