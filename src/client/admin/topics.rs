//! Topics: routes, settings, figures.

use super::brokers::any_address;
use super::{Admin, AdminError, QUEUES_MAX, is_address};
use crate::wire::body::json;
use crate::wire::body::route::{TopicList, TopicRouteData};
use crate::wire::body::stats::TopicStatsTable;
use crate::wire::body::topic::{TopicConfig, TopicConfigWrapper};
use crate::wire::codes::{request, response};
use crate::wire::command::Request;
use crate::wire::names;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Groups {
    group_list: Vec<String>,
}

impl Admin {
    /// Names of all topics, sorted.
    ///
    /// # Errors
    /// As [`Admin::ask_nameserver`].
    pub fn topic_list(&mut self) -> Result<Vec<String>, AdminError> {
        let list: TopicList =
            self.body_of_nameserver(Request::new(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER))?;
        Ok(sorted(list.topic_list))
    }

    /// Names of the topics that brokers of a cluster have, sorted.
    ///
    /// # Errors
    /// As [`Admin::ask_nameserver`].
    pub fn topics_of_cluster(&mut self, cluster: &str) -> Result<Vec<String>, AdminError> {
        let ask = Request::new(request::GET_TOPICS_BY_CLUSTER).with("cluster", cluster);
        let list: TopicList = self.body_of_nameserver(ask)?;
        Ok(sorted(list.topic_list))
    }

    /// Where a topic is. Every broker in it has an address, and no broker a number of queues that
    /// cannot be.
    ///
    /// # Errors
    /// `NotFound` for a topic that no nameserver knows; `Unsound` for a route that cannot be true.
    pub fn route(&mut self, topic: &str) -> Result<TopicRouteData, AdminError> {
        let ask = Request::new(request::GET_ROUTEINFO_BY_TOPIC)
            .with("topic", topic)
            .with("acceptStandardJsonOnly", true);
        let route: TopicRouteData = match self.body_of_nameserver(ask) {
            Err(error) if error.code() == Some(response::TOPIC_NOT_EXIST) => {
                return Err(AdminError::not_found("topic", topic));
            }
            other => other.map_err(|error| error.topic(topic))?,
        };
        check_route(&route).map_err(|what| {
            AdminError::unsound(&self.nameservers[self.current], what).topic(topic)
        })?;
        Ok(route)
    }

    /// The brokers of a topic's route: name and address, the master's where it has one.
    ///
    /// # Errors
    /// As [`Admin::route`].
    pub fn brokers_of_topic(&mut self, topic: &str) -> Result<Vec<(String, String)>, AdminError> {
        let route = self.route(topic)?;
        let brokers = route.broker_datas.into_iter().filter_map(|broker| {
            let address = any_address(&broker.broker_addrs)?.to_owned();
            Some((broker.broker_name, address))
        });
        Ok(brokers.collect())
    }

    /// The bounds of a topic's queues on one broker.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn topic_stats(
        &mut self,
        broker: &str,
        topic: &str,
    ) -> Result<TopicStatsTable, AdminError> {
        let ask = Request::new(request::GET_TOPIC_STATS_INFO).with("topic", topic);
        self.body_of(broker, ask)
            .map_err(|error| error.topic(topic))
    }

    /// The bounds of several topics' queues on one broker, asked all at once. A topic that the broker
    /// does not have is left out.
    ///
    /// # Errors
    /// As [`Admin::ask_all`].
    pub fn topic_stats_of(
        &mut self,
        broker: &str,
        topics: &[String],
    ) -> Result<Vec<(String, TopicStatsTable)>, AdminError> {
        let code = request::GET_TOPIC_STATS_INFO;
        let requests = topics
            .iter()
            .map(|topic| Request::new(code).with("topic", topic));
        let answers = self.ask_all(broker, requests.collect())?;
        let mut found = Vec::new();
        for (topic, answer) in topics.iter().zip(answers) {
            if answer.code == response::SUCCESS {
                found.push((topic.clone(), super::read_body(broker, code, &answer)?));
            }
        }
        Ok(found)
    }

    /// Makes a topic on one broker, or changes it. Attributes are given as changes: `+name` sets,
    /// `-name` takes away.
    ///
    /// # Errors
    /// As [`Admin::ask`]; a bad name or setting is refused with code 29 or 1.
    pub fn update_topic(&mut self, broker: &str, config: &TopicConfig) -> Result<(), AdminError> {
        let attributes: Vec<String> = config
            .attributes
            .iter()
            .map(|(name, value)| match name.starts_with('-') {
                true => name.clone(),
                false => format!("{name}={value}"),
            })
            .collect();
        let mut change = Request::new(request::UPDATE_AND_CREATE_TOPIC)
            .with("topic", &config.topic_name)
            .with("defaultTopic", names::AUTO_CREATE_TOPIC)
            .with("readQueueNums", config.read_queue_nums)
            .with("writeQueueNums", config.write_queue_nums)
            .with("perm", config.perm)
            .with("topicFilterType", config.topic_filter_type.name())
            .with("topicSysFlag", config.topic_sys_flag)
            .with("order", config.order);
        if !attributes.is_empty() {
            change = change.with("attributes", attributes.join(","));
        }
        self.ask(broker, change)
            .map(drop)
            .map_err(|error| error.topic(&config.topic_name))
    }

    /// Makes or changes several topics on one broker at once.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn update_topics(
        &mut self,
        broker: &str,
        configs: &[TopicConfig],
    ) -> Result<(), AdminError> {
        let body = serde_json::json!({ "topicConfigList": configs });
        let change = Request::new(request::UPDATE_AND_CREATE_TOPIC_LIST);
        self.ask(broker, change.with_body(json::encode(&body)))
            .map(drop)
    }

    /// A topic's settings on one broker.
    ///
    /// # Errors
    /// As [`Admin::ask`]; code 17 where it is not there.
    pub fn topic_config(&mut self, broker: &str, topic: &str) -> Result<TopicConfig, AdminError> {
        let ask = Request::new(request::GET_TOPIC_CONFIG).with("topic", topic);
        self.body_of(broker, ask)
            .map_err(|error| error.topic(topic))
    }

    /// The settings of all topics of one broker.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn topic_configs(
        &mut self,
        broker: &str,
    ) -> Result<BTreeMap<String, TopicConfig>, AdminError> {
        let all: TopicConfigWrapper =
            self.body_of(broker, Request::new(request::GET_ALL_TOPIC_CONFIG))?;
        Ok(all.topic_config_table)
    }

    /// Deletes a topic and its messages from one broker.
    ///
    /// # Errors
    /// As [`Admin::ask`]; a topic of the broker's own is refused.
    pub fn delete_topic(&mut self, broker: &str, topic: &str) -> Result<(), AdminError> {
        let delete = Request::new(request::DELETE_TOPIC_IN_BROKER).with("topic", topic);
        self.ask(broker, delete)
            .map(drop)
            .map_err(|error| error.topic(topic))
    }

    /// Lets every nameserver forget a topic of a cluster.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    pub fn forget_topic(&mut self, cluster: &str, topic: &str) -> Result<(), AdminError> {
        let delete = Request::new(request::DELETE_TOPIC_IN_NAMESRV)
            .with("topic", topic)
            .with("clusterName", cluster);
        self.ask_nameservers(&delete)
            .map(drop)
            .map_err(|error| error.topic(topic))
    }

    /// The groups that read a topic from one broker, sorted.
    ///
    /// # Errors
    /// As [`Admin::ask`].
    pub fn groups_of_topic(
        &mut self,
        broker: &str,
        topic: &str,
    ) -> Result<Vec<String>, AdminError> {
        let ask = Request::new(request::QUERY_TOPIC_CONSUME_BY_WHO).with("topic", topic);
        let groups: Groups = self
            .body_of(broker, ask)
            .map_err(|error| error.topic(topic))?;
        Ok(sorted(groups.group_list))
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

/// Why a route cannot be true.
fn check_route(route: &TopicRouteData) -> Result<(), String> {
    for broker in &route.broker_datas {
        let name = &broker.broker_name;
        if broker.broker_addrs.is_empty() {
            return Err(format!("broker {name:?} has no address"));
        }
        let bad = broker
            .broker_addrs
            .values()
            .find(|address| !is_address(address));
        if let Some(bad) = bad {
            return Err(format!(
                "broker {name:?} is at {bad:?}, which is no address"
            ));
        }
    }
    for queues in &route.queue_datas {
        for count in [queues.read_queue_nums, queues.write_queue_nums] {
            if !(0..=QUEUES_MAX).contains(&count) {
                let name = &queues.broker_name;
                return Err(format!("broker {name:?} has {count} queues of the topic"));
            }
        }
    }
    Ok(())
}
