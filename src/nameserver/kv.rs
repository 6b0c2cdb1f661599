//! Key-value configuration by namespace (`KVConfigManager`). What is left of it
//! in use is `ORDER_TOPIC_CONFIG`: how many queues an ordered topic has on which broker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::wire::body::json::{self, JsonError, null_as_default};
use crate::wire::body::route::KVTable;
use crate::wire::command::Response;

use super::{NAME_BYTES_MAX, TOPIC_BYTES_MAX, check_name, refusal};

/// The namespace of `topic -> broker-a:4;broker-b:4`.
pub(super) const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// Most bytes of all namespaces, keys and values together. All of one namespace
/// must fit into one answer. At the bound a new pair is refused.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest value, in bytes: it is answered in a header.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// What an entry is counted as in addition to its text.
const ENTRY_BYTES: usize = 64;

type Tables = BTreeMap<String, BTreeMap<String, String>>;

/// The content of `kvConfig.json` (`KVConfigSerializeWrapper`).
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    #[serde(deserialize_with = "null_as_default")]
    config_table: Tables,
}

#[derive(Default)]
pub(super) struct Kv {
    file: File,
    bytes: usize,
    dirty: bool,
}

impl Kv {
    pub fn load(&mut self, content: &[u8]) -> Result<(), JsonError> {
        self.file = json::parse(content)?;
        let tables = self.file.config_table.iter();
        let sizes = tables.map(|(namespace, table)| {
            let pairs = table.iter().map(|(k, v)| size(k, v));
            size(namespace, "") + pairs.sum::<usize>()
        });
        self.bytes = sizes.sum();
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        json::encode(&self.file)
    }

    /// Whether there was a change since the last call.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    pub fn get(&self, namespace: &str, key: &str) -> Option<&str> {
        let value = self.file.config_table.get(namespace)?.get(key)?;
        Some(value)
    }

    /// All pairs of a namespace as JSON.
    pub fn list(&self, namespace: &str) -> Option<Vec<u8>> {
        let table = self.file.config_table.get(namespace)?.clone();
        Some(json::encode(&KVTable { table }))
    }

    pub fn put(&mut self, namespace: &str, key: &str, value: &str) -> Result<(), Response> {
        check_name("namespace", namespace, NAME_BYTES_MAX)?;
        check_name("key", key, TOPIC_BYTES_MAX)?;
        if value.len() > VALUE_BYTES_MAX {
            let length = value.len();
            return Err(refusal(format!(
                "value has {length} bytes, the limit is {VALUE_BYTES_MAX}"
            )));
        }
        let table = self.file.config_table.get(namespace);
        let mut more = size(key, value);
        let mut less = 0;
        match table {
            None => more += size(namespace, ""),
            Some(table) => less = table.get(key).map_or(0, |old| size(key, old)),
        }
        let bytes = self.bytes - less + more;
        if bytes > BYTES_MAX {
            return Err(refusal(format!(
                "key-value configuration would have {bytes} bytes, the limit is {BYTES_MAX}"
            )));
        }
        self.bytes = bytes;
        let table = self.file.config_table.entry(namespace.to_owned());
        table.or_default().insert(key.to_owned(), value.to_owned());
        self.dirty = true;
        Ok(())
    }

    /// Removes a pair if it is there. Its namespace stays, as it does in Java.
    pub fn delete(&mut self, namespace: &str, key: &str) {
        let table = self.file.config_table.get_mut(namespace);
        if let Some(value) = table.and_then(|table| table.remove(key)) {
            self.bytes -= size(key, &value);
            self.dirty = true;
        }
    }
}

fn size(key: &str, value: &str) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_survives_a_restart() {
        let mut kv = Kv::default();
        assert!(!kv.take_dirty());
        kv.put(ORDER_TOPIC_CONFIG, "T", "b:4").unwrap();
        assert!(kv.take_dirty() && !kv.take_dirty());
        let file = kv.encode();
        assert_eq!(
            file,
            br#"{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b:4"}}}"#
        );
        let mut again = Kv::default();
        again.load(&file).unwrap();
        assert_eq!(again.get(ORDER_TOPIC_CONFIG, "T"), Some("b:4"));
        assert_eq!(again.bytes, kv.bytes);
        assert!(again.load(b"{").is_err());
        assert_eq!(again.get(ORDER_TOPIC_CONFIG, "T"), Some("b:4"));
    }

    #[test]
    fn a_namespace_without_pairs_is_listed_as_empty_and_an_unknown_one_is_not_found() {
        let mut kv = Kv::default();
        kv.put("ns", "k", "v").unwrap();
        kv.delete("ns", "k");
        kv.delete("ns", "k");
        assert_eq!(kv.list("ns").unwrap(), br#"{"table":{}}"#);
        assert_eq!(kv.list("other"), None);
    }

    #[test]
    fn memory_is_bounded_and_deleting_makes_room() {
        let mut kv = Kv::default();
        let value = "v".repeat(VALUE_BYTES_MAX);
        let fill = |kv: &mut Kv, key: &str| kv.put("ns", key, &value);
        let full = (0..).find_map(|n| fill(&mut kv, &n.to_string()).err());
        assert!(full.unwrap().remark.unwrap().contains("limit is 8388608"));
        fill(&mut kv, "0").unwrap();
        assert!(fill(&mut kv, "x").is_err());
        kv.delete("ns", "0");
        fill(&mut kv, "x").unwrap();
        assert!(kv.put("ns", "0", &"v".repeat(VALUE_BYTES_MAX + 1)).is_err());
        assert!(kv.put(&"n".repeat(256), "k", "v").is_err());
        assert!(kv.put("ns", "k\n", "v").is_err());
    }
}
