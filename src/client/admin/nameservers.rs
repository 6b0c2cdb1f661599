//! What is asked of nameservers: their settings, their table of keys, permissions.

use super::properties_text::{from_properties_text, to_properties_text};
use super::{Admin, AdminError, number_of};
use crate::wire::body::route::KVTable;
use crate::wire::codes::{request, response};
use crate::wire::command::Request;
use std::collections::BTreeMap;

/// The namespace of ordered topics' queues in the table of keys.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

impl Admin {
    /// The settings of every nameserver, by address.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    #[expect(clippy::type_complexity, reason = "pairs by address")]
    pub fn nameserver_configs(
        &mut self,
    ) -> Result<Vec<(String, Vec<(String, String)>)>, AdminError> {
        let answers = self.ask_nameservers(&Request::new(request::GET_NAMESRV_CONFIG))?;
        let read = answers.into_iter().map(|(address, answer)| {
            let mut pairs = from_properties_text(&String::from_utf8_lossy(&answer.body));
            pairs.sort();
            (address, pairs)
        });
        Ok(read.collect())
    }

    /// Changes settings of every nameserver while it runs.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    pub fn update_nameserver_config(&mut self, pairs: &[(&str, &str)]) -> Result<(), AdminError> {
        let body = to_properties_text(pairs.iter().copied());
        let change = Request::new(request::UPDATE_NAMESRV_CONFIG).with_body(body);
        self.ask_nameservers(&change).map(drop)
    }

    /// Sets a key at every nameserver.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    pub fn put_kv(&mut self, namespace: &str, key: &str, value: &str) -> Result<(), AdminError> {
        let put = Request::new(request::PUT_KV_CONFIG)
            .with("namespace", namespace)
            .with("key", key)
            .with("value", value);
        self.ask_nameservers(&put).map(drop)
    }

    /// The value of a key; `None` where it has none.
    ///
    /// # Errors
    /// As [`Admin::ask_nameserver`].
    pub fn get_kv(&mut self, namespace: &str, key: &str) -> Result<Option<String>, AdminError> {
        let get = Request::new(request::GET_KV_CONFIG)
            .with("namespace", namespace)
            .with("key", key);
        match self.ask_nameserver(get) {
            Ok(answer) => Ok(answer.get("value").map(str::to_owned)),
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All keys of a namespace; none where nobody has set one.
    ///
    /// # Errors
    /// As [`Admin::ask_nameserver`].
    pub fn list_kv(&mut self, namespace: &str) -> Result<BTreeMap<String, String>, AdminError> {
        let ask = Request::new(request::GET_KVLIST_BY_NAMESPACE).with("namespace", namespace);
        match self.body_of_nameserver::<KVTable>(ask) {
            Ok(table) => Ok(table.table),
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Takes a key away at every nameserver.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    pub fn delete_kv(&mut self, namespace: &str, key: &str) -> Result<(), AdminError> {
        let delete = Request::new(request::DELETE_KV_CONFIG)
            .with("namespace", namespace)
            .with("key", key);
        self.ask_nameservers(&delete).map(drop)
    }

    /// Takes the permission to write all topics of a broker away at every nameserver. Returns how
    /// many topics each has changed.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    pub fn wipe_write_perm(&mut self, broker: &str) -> Result<Vec<(String, i64)>, AdminError> {
        self.write_perm(request::WIPE_WRITE_PERM_OF_BROKER, broker, "wipeTopicCount")
    }

    /// Gives it back.
    ///
    /// # Errors
    /// As [`Admin::ask_nameservers`].
    pub fn add_write_perm(&mut self, broker: &str) -> Result<Vec<(String, i64)>, AdminError> {
        self.write_perm(request::ADD_WRITE_PERM_OF_BROKER, broker, "addTopicCount")
    }

    fn write_perm(
        &mut self,
        code: i32,
        broker: &str,
        field: &str,
    ) -> Result<Vec<(String, i64)>, AdminError> {
        let change = Request::new(code).with("brokerName", broker);
        let answers = self
            .ask_nameservers(&change)
            .map_err(|error| error.broker(broker))?;
        let counts = answers.into_iter().map(|(address, answer)| {
            let count = number_of(&address, &answer, field)?;
            Ok((address, count))
        });
        counts.collect()
    }
}
