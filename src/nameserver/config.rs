//! Settings of the nameserver under the keys of `namesrv.properties`
//! (`NamesrvConfig`, `NettyServerConfig`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1024;
/// Most bytes of settings in one request.
const TEXT_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `true` or `false`.
    Bool,
    /// A decimal number, not negative.
    Number,
    /// Any text.
    Text,
    /// Any text; fixed once the process runs, as a path or a port is.
    Fixed,
}

/// Every known key, its kind and its default. Keys about Java's threads and
/// buffers have no effect here; they are accepted so that a file of Apache's can
/// be used as it is.
const KEYS: &[(&str, Kind, &str)] = &[
    ("bindAddress", Kind::Fixed, ""),
    ("clientRequestThreadPoolNums", Kind::Number, "8"),
    (
        "clientRequestThreadPoolQueueCapacity",
        Kind::Number,
        "50000",
    ),
    ("clusterTest", Kind::Bool, "false"),
    (
        "configBlackList",
        Kind::Fixed,
        "configBlackList;configStorePath;kvConfigPath",
    ),
    ("configStorePath", Kind::Fixed, ""),
    ("defaultThreadPoolNums", Kind::Number, "16"),
    ("defaultThreadPoolQueueCapacity", Kind::Number, "10000"),
    ("deleteTopicWithBrokerRegistration", Kind::Bool, "false"),
    ("enableAllTopicList", Kind::Bool, "true"),
    ("enableControllerInNamesrv", Kind::Bool, "false"),
    ("enableShutdownGracefully", Kind::Bool, "false"),
    ("enableTopicList", Kind::Bool, "true"),
    ("kvConfigPath", Kind::Fixed, ""),
    ("listenPort", Kind::Fixed, "9876"),
    ("needWaitForService", Kind::Bool, "false"),
    ("notifyMinBrokerIdChanged", Kind::Bool, "false"),
    ("orderMessageEnable", Kind::Bool, "false"),
    ("productEnvName", Kind::Text, "center"),
    ("returnOrderTopicConfigToBroker", Kind::Bool, "true"),
    ("rocketmqHome", Kind::Fixed, ""),
    ("scanNotActiveBrokerInterval", Kind::Number, "5000"),
    ("serverAsyncSemaphoreValue", Kind::Number, "64"),
    ("serverCallbackExecutorThreads", Kind::Number, "0"),
    ("serverChannelMaxIdleTimeSeconds", Kind::Number, "120"),
    ("serverNettyWorkerGroupEnable", Kind::Bool, "true"),
    ("serverOnewaySemaphoreValue", Kind::Number, "256"),
    ("serverPooledByteBufAllocatorEnable", Kind::Bool, "true"),
    ("serverSelectorThreads", Kind::Number, "3"),
    ("serverSocketBacklog", Kind::Number, "1024"),
    ("serverSocketRcvBufSize", Kind::Number, "0"),
    ("serverSocketSndBufSize", Kind::Number, "0"),
    ("serverWorkerThreads", Kind::Number, "8"),
    ("shutdownWaitTimeSeconds", Kind::Number, "30"),
    ("supportActingMaster", Kind::Bool, "false"),
    ("unRegisterBrokerQueueCapacity", Kind::Number, "3000"),
    ("useEpollNativeSelector", Kind::Bool, "false"),
    ("waitSecondsForService", Kind::Number, "45"),
    ("writeBufferHighWaterMark", Kind::Number, "0"),
    ("writeBufferLowWaterMark", Kind::Number, "0"),
];

/// The settings that something here depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches {
    pub delete_topic_with_broker_registration: bool,
    pub enable_all_topic_list: bool,
    pub enable_topic_list: bool,
    pub need_wait_for_service: bool,
    pub order_message_enable: bool,
    pub return_order_topic_config_to_broker: bool,
    pub support_acting_master: bool,
    pub wait_ms_for_service: u64,
}

/// Why settings are refused. All of them are refused then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No such key.
    UnknownKey {
        /// The key, shortened.
        key: String,
        /// The known key that is most like it.
        nearest: &'static str,
    },
    /// The key cannot change while the process runs.
    Fixed(&'static str),
    /// The value is not of the key's kind.
    Value {
        /// The key.
        key: &'static str,
        /// What the value should be.
        expected: &'static str,
    },
    /// A line that is no `key=value`; its number, from 1.
    Line(usize),
    /// The text is longer than accepted, or not UTF-8.
    Text(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::UnknownKey { key, nearest } => {
                write!(f, "unknown setting {key}, did you mean {nearest}?")
            }
            ConfigError::Fixed(key) => {
                write!(f, "setting {key} can only be changed by a restart")
            }
            ConfigError::Value { key, expected } => write!(f, "setting {key} must be {expected}"),
            ConfigError::Line(number) => write!(f, "line {number} is not key=value"),
            ConfigError::Text(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The settings of a nameserver.
#[derive(Clone, Debug)]
pub struct Config {
    values: BTreeMap<&'static str, String>,
    changed: BTreeSet<&'static str>,
    switches: Switches,
}

impl Default for Config {
    fn default() -> Config {
        let values = KEYS.iter().map(|&(key, _, value)| (key, value.to_owned()));
        let mut config = Config {
            values: values.collect(),
            changed: BTreeSet::new(),
            switches: Switches::default(),
        };
        config.read_switches();
        config
    }
}

impl Config {
    /// Sets one key at start, any known key.
    ///
    /// # Errors
    /// [`ConfigError::UnknownKey`], [`ConfigError::Value`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let (key, kind) = find(key)?;
        check(key, kind, value)?;
        self.values.insert(key, value.to_owned());
        self.read_switches();
        Ok(())
    }

    /// Takes over the settings that an earlier process kept in
    /// [`super::CONFIG_FILE`], in addition to what was [`Self::set`].
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has changed then.
    pub fn load(&mut self, text: &[u8]) -> Result<(), ConfigError> {
        self.update(text)
    }

    /// Changes the settings given as lines of `key=value` while the process runs.
    pub(super) fn update(&mut self, text: &[u8]) -> Result<(), ConfigError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ConfigError::Text("settings have more than 65536 bytes"));
        }
        let text =
            std::str::from_utf8(text).map_err(|_| ConfigError::Text("settings are not UTF-8"))?;
        let mut changes = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let (key, value) = line
                .split_once(['=', ':'])
                .ok_or(ConfigError::Line(number))?;
            let (key, kind) = find(key.trim())?;
            if kind == Kind::Fixed || self.is_listed_as_fixed(key) {
                return Err(ConfigError::Fixed(key));
            }
            check(key, kind, value.trim())?;
            changes.push((key, value.trim().to_owned()));
        }
        for (key, value) in changes {
            self.values.insert(key, value);
            self.changed.insert(key);
        }
        self.read_switches();
        Ok(())
    }

    /// Whether the operator has named the key in `configBlackList`.
    fn is_listed_as_fixed(&self, key: &str) -> bool {
        let list = self.values.get("configBlackList");
        list.is_some_and(|list| list.split(';').any(|listed| listed.trim() == key))
    }

    /// All settings as lines of `key=value`, sorted.
    pub fn text(&self) -> String {
        lines(self.values.iter())
    }

    /// The settings changed at run time, as lines.
    pub(super) fn changes(&self) -> String {
        let changed = |&(key, _): &(&&'static str, &String)| self.changed.contains(*key);
        lines(self.values.iter().filter(changed))
    }

    pub(super) fn switches(&self) -> &Switches {
        &self.switches
    }

    fn read_switches(&mut self) {
        let on = |key| self.values.get(key).is_some_and(|value| value == "true");
        let seconds = self.values.get("waitSecondsForService");
        let seconds: u64 = seconds.and_then(|s| s.parse().ok()).unwrap_or(45);
        self.switches = Switches {
            delete_topic_with_broker_registration: on("deleteTopicWithBrokerRegistration"),
            enable_all_topic_list: on("enableAllTopicList"),
            enable_topic_list: on("enableTopicList"),
            need_wait_for_service: on("needWaitForService"),
            order_message_enable: on("orderMessageEnable"),
            return_order_topic_config_to_broker: on("returnOrderTopicConfigToBroker"),
            support_acting_master: on("supportActingMaster"),
            wait_ms_for_service: seconds.saturating_mul(1000),
        };
    }
}

fn lines<'a>(values: impl Iterator<Item = (&'a &'static str, &'a String)>) -> String {
    values
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

fn find(key: &str) -> Result<(&'static str, Kind), ConfigError> {
    if let Ok(index) = KEYS.binary_search_by_key(&key, |&(name, _, _)| name) {
        let (name, kind, _) = KEYS[index];
        return Ok((name, kind));
    }
    let key: String = key.chars().take(64).collect();
    let nearest = KEYS
        .iter()
        .map(|&(name, _, _)| (strsim::jaro_winkler(&key, name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or("", |(_, name)| name);
    let key = super::shown(&key);
    Err(ConfigError::UnknownKey { key, nearest })
}

fn check(key: &'static str, kind: Kind, value: &str) -> Result<(), ConfigError> {
    let expected = match kind {
        Kind::Bool if !matches!(value, "true" | "false") => "true or false",
        Kind::Number if value.parse::<u32>().is_err() => "a number within 0..=4294967295",
        _ if value.len() > VALUE_BYTES_MAX => "at most 1024 bytes long",
        _ if value.chars().any(char::is_control) => "without control characters",
        _ => return Ok(()),
    };
    Err(ConfigError::Value { key, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_their_defaults_are_of_their_kind() {
        assert!(KEYS.is_sorted_by(|a, b| a.0 < b.0));
        for &(key, kind, value) in KEYS {
            check(key, kind, value).unwrap();
        }
        let switches = *Config::default().switches();
        assert!(switches.enable_all_topic_list && switches.enable_topic_list);
        assert!(switches.return_order_topic_config_to_broker && !switches.need_wait_for_service);
        assert_eq!(switches.wait_ms_for_service, 45_000);
    }

    #[test]
    fn an_update_takes_effect_and_is_kept_for_the_next_start() {
        let mut config = Config::default();
        let text = b"# by hand\n orderMessageEnable = true \r\nproductEnvName=a=b\n";
        config.update(text).unwrap();
        assert!(config.switches().order_message_enable);
        assert!(config.text().contains("\nproductEnvName=a=b\n"));
        assert_eq!(
            config.changes(),
            "orderMessageEnable=true\nproductEnvName=a=b\n"
        );
        let mut again = Config::default();
        again.load(config.changes().as_bytes()).unwrap();
        assert_eq!(again.text(), config.text());
    }

    #[test]
    fn an_update_with_one_bad_line_changes_nothing() {
        for (line, said) in [
            ("kvConfigPath=/etc/passwd", "restart"),
            ("configStorePath=/x", "restart"),
            ("configBlackList=", "restart"),
            (
                "orderMessageEnabel=true",
                "did you mean orderMessageEnable?",
            ),
            ("enableTopicList=yes", "true or false"),
            ("waitSecondsForService=-1", "a number"),
            ("productEnvName=a\u{1}b", "control"),
            ("nonsense", "line 2"),
        ] {
            let mut config = Config::default();
            let text = format!("orderMessageEnable=true\n{line}");
            let error = config.update(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
            assert_eq!(config.text(), Config::default().text());
        }
        let mut config = Config::default();
        config.set("configBlackList", "x;productEnvName").unwrap();
        assert!(config.update(b"productEnvName=a").is_err());
        assert!(Config::default().update(&[0xff]).is_err());
        assert!(Config::default().update(&vec![b'\n'; 65537]).is_err());
    }
}
