//! Settings from a file, from `--set` and from requests at run time.

use super::address::Exposure;
use super::keys::{self, Change, KEYS, Key, Lookup};
use super::limits::{PROPERTIES_BYTES_MAX, RECORD_OVERHEAD_BYTES_MAX};
use super::properties;
use super::settings::{Role, Settings};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Where settings come from, weakest first: defaults by role, the file, `sets`, `store` and
/// `shards`.
#[derive(Clone, Debug)]
pub struct Sources {
    /// What the process runs as.
    pub role: Role,
    /// `-c`: RocketMQ's `broker.conf` or `namesrv.properties`.
    pub file: Option<PathBuf>,
    /// `--set`: each `key=value`.
    pub sets: Vec<String>,
    /// `--store`.
    pub store: Option<PathBuf>,
    /// `--shards`.
    pub shards: Option<u16>,
}

/// Settings, and what is to be said about them once.
#[derive(Debug)]
pub struct Loaded {
    /// What the process runs with.
    pub settings: Settings,
    /// Keys that were given and have no effect here, each once, in the order given.
    pub without_effect: Vec<String>,
}

/// Where a key was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file, on a line counted from 1.
    File(PathBuf, usize),
    /// With `--set`.
    Set,
    /// With the option of this name.
    CommandLine(&'static str),
    /// In a request to the running process.
    Request,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Set => f.write_str("--set"),
            Origin::CommandLine(option) => f.write_str(option),
            Origin::Request => f.write_str("request"),
        }
    }
}

/// Why there are no settings.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The text is longer than [`PROPERTIES_BYTES_MAX`].
    TooLong(Origin),
    /// A `\u` without four hexadecimal digits.
    Escape(Origin),
    /// What follows `--set` is not `key=value`.
    NotKeyValue(String),
    /// A key that neither RocketMQ nor RingMQ has.
    UnknownKey {
        /// Where it was given.
        at: Origin,
        /// The key.
        key: String,
        /// The known key that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A value that the key cannot have.
    Value {
        /// Where it was given.
        at: Origin,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Values that it can have, in words.
        allowed: String,
    },
    /// A value that asks for something RingMQ does not have yet.
    NotYet {
        /// Where it was given.
        at: Origin,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is missing.
        missing: &'static str,
    },
    /// `storePathCommitLog` names another folder than the store has.
    CommitLogPath {
        /// Where it was given.
        at: Origin,
        /// The folder it names.
        given: PathBuf,
        /// The only one it may name.
        expected: PathBuf,
    },
    /// Two settings that do not fit each other.
    Conflict(String),
    /// A key that cannot change while the process runs.
    Fixed(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Read(path, error) => {
                write!(f, "cannot read {}: {error}", path.display())
            }
            ConfigError::TooLong(at) => {
                write!(f, "{at}: more than {PROPERTIES_BYTES_MAX} bytes")
            }
            ConfigError::Escape(at) => {
                write!(f, "{at}: \\u must be followed by four hexadecimal digits")
            }
            ConfigError::NotKeyValue(text) => {
                write!(f, "--set takes key=value, not {text:?}")
            }
            ConfigError::UnknownKey { at, key, nearest } => {
                write!(f, "{at}: unknown key {key:?}")?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean {nearest}?"),
                    None => Ok(()),
                }
            }
            ConfigError::Value {
                at,
                key,
                value,
                allowed,
            } => write!(f, "{at}: {key} = {value:?}, but it must be {allowed}"),
            ConfigError::NotYet {
                at,
                key,
                value,
                missing,
            } => write!(
                f,
                "{at}: {key} = {value} asks for {missing}, which RingMQ does not have yet; \
                 remove the key to run without"
            ),
            ConfigError::CommitLogPath {
                at,
                given,
                expected,
            } => write!(
                f,
                "{at}: storePathCommitLog = {} is not {}: the CommitLog lives in the store's \
                 folder; remove the key or set storePathRootDir",
                given.display(),
                expected.display()
            ),
            ConfigError::Conflict(text) => f.write_str(text),
            ConfigError::Fixed(key) => {
                write!(f, "{key} cannot change while the process runs; it can: ")?;
                let mut names = KEYS.iter().filter(|k| k.change == Change::AtRunTime);
                if let Some(first) = names.next() {
                    f.write_str(first.name)?;
                }
                names.try_for_each(|key| write!(f, ", {}", key.name))
            }
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfigError::Read(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Reads all sources. The first thing that is wrong is the error.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let mut loading = Loading::new();
    if let Some(path) = &sources.file {
        loading.file(path)?;
    }
    for set in &sources.sets {
        let (key, value) = set
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| ConfigError::NotKeyValue(set.clone()))?;
        loading.apply(Origin::Set, key.trim(), value.trim())?;
    }
    if let Some(store) = &sources.store {
        let text = store.to_string_lossy();
        loading.apply(Origin::CommandLine("--store"), "storePathRootDir", &text)?;
        // Not every path is text.
        loading.settings.store_path_root_dir.clone_from(store);
    }
    if let Some(shards) = sources.shards {
        let text = shards.to_string();
        loading.apply(Origin::CommandLine("--shards"), "shards", &text)?;
    }
    loading.finish(sources)
}

struct Loading {
    settings: Settings,
    given: Vec<&'static str>,
    without_effect: Vec<String>,
    commit_log: Option<(Origin, PathBuf)>,
}

impl Loading {
    fn new() -> Self {
        Loading {
            settings: Settings::default(),
            given: Vec::new(),
            without_effect: Vec::new(),
            commit_log: None,
        }
    }

    fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let at = |line| Origin::File(path.to_owned(), line);
        let bytes = std::fs::read(path).map_err(|e| ConfigError::Read(path.to_owned(), e))?;
        if bytes.len() > PROPERTIES_BYTES_MAX {
            return Err(ConfigError::TooLong(at(1)));
        }
        let found = properties::parse(&properties::decode(&bytes))
            .map_err(|e| ConfigError::Escape(at(e.line)))?;
        for property in found {
            self.apply(at(property.line), &property.key, &property.value)?;
        }
        Ok(())
    }

    fn apply(&mut self, at: Origin, key: &str, value: &str) -> Result<(), ConfigError> {
        match keys::look_up(key) {
            Lookup::Used(used) => {
                set(&mut self.settings, used, value, at)?;
                self.given.push(used.name);
            }
            Lookup::NotYet(harmless, missing) => {
                let value = value.trim();
                if !harmless.iter().any(|h| h.eq_ignore_ascii_case(value)) && !value.is_empty() {
                    return Err(ConfigError::NotYet {
                        at,
                        key: key.to_owned(),
                        value: value.to_owned(),
                        missing,
                    });
                }
                self.note_without_effect(key);
            }
            Lookup::CommitLogPath => {
                self.commit_log = (!value.is_empty()).then(|| (at, value.into()));
            }
            Lookup::WithoutEffect => self.note_without_effect(key),
            Lookup::Unknown(nearest) => {
                return Err(ConfigError::UnknownKey {
                    at,
                    key: key.to_owned(),
                    nearest,
                });
            }
        }
        Ok(())
    }

    fn note_without_effect(&mut self, key: &str) {
        if !self.without_effect.iter().any(|known| known == key) {
            self.without_effect.push(key.to_owned());
        }
    }

    fn finish(self, sources: &Sources) -> Result<Loaded, ConfigError> {
        let mut settings = self.settings;
        let given = |name| self.given.contains(&name);
        if let Some((at, given)) = self.commit_log {
            let expected = settings.store_path_root_dir.join("commitlog");
            // Compared by component: `a//b/.` is `a/b`.
            if !given.components().eq(expected.components()) {
                return Err(ConfigError::CommitLogPath {
                    at,
                    given,
                    expected,
                });
            }
        }
        match sources.role {
            Role::Nameserver if given("listenPort") => {
                settings.nameserver_port = settings.listen_port;
            }
            Role::Nameserver => settings.listen_port = settings.nameserver_port,
            Role::Server if settings.listen_port == settings.nameserver_port => {
                return Err(ConfigError::Conflict(format!(
                    "listenPort and nameserverPort are both {}",
                    settings.listen_port
                )));
            }
            Role::Server | Role::Broker => {}
        }
        let opened = sources.role != Role::Server
            || sources.file.is_some()
            || settings.bind_address.is_some()
            || settings.broker_ip1.is_some();
        settings.exposure = match opened {
            true => Exposure::Open,
            false => Exposure::Loopback,
        };
        check(&settings)?;
        Ok(Loaded {
            settings,
            without_effect: self.without_effect,
        })
    }
}

fn set(settings: &mut Settings, key: &Key, value: &str, at: Origin) -> Result<(), ConfigError> {
    if (key.read)(settings, value, &key.allowed) {
        return Ok(());
    }
    Err(ConfigError::Value {
        at,
        key: key.name.to_owned(),
        value: value.to_owned(),
        allowed: key.allowed.to_string(),
    })
}

/// What must hold between settings.
fn check(settings: &Settings) -> Result<(), ConfigError> {
    let record = settings.max_message_size + RECORD_OVERHEAD_BYTES_MAX;
    let fits = |key: &str, bytes: u64| {
        if record as u64 <= bytes {
            return Ok(());
        }
        Err(ConfigError::Conflict(format!(
            "maxMessageSize = {} does not fit {key} = {bytes}: with {key} so small it can be at \
             most {}",
            settings.max_message_size,
            bytes.saturating_sub(RECORD_OVERHEAD_BYTES_MAX as u64)
        )))
    };
    fits("tailFileBytes", settings.tail_file_bytes as u64)?;
    fits(
        "mappedFileSizeCommitLog",
        settings.mapped_file_size_commit_log,
    )
}

impl Settings {
    /// All keys that RingMQ uses with their present values, `key=value` a line, as
    /// `GET_BROKER_CONFIG` returns them. `java.util.Properties` reads them back.
    pub fn properties_text(&self) -> String {
        let mut text = String::new();
        for key in KEYS {
            properties::write(&mut text, key.name, &key.text(self));
        }
        text
    }

    /// Applies the properties of `UPDATE_BROKER_CONFIG`, and returns the keys whose value is
    /// another one now. All or nothing: after an error the settings are what they were.
    pub fn update(&mut self, text: &str) -> Result<Vec<&'static str>, UpdateError> {
        if text.len() > PROPERTIES_BYTES_MAX {
            return Err(ConfigError::TooLong(Origin::Request));
        }
        let mut next = self.clone();
        let mut changed = Vec::new();
        let found = properties::parse(text).map_err(|_| ConfigError::Escape(Origin::Request))?;
        for property in found {
            match keys::look_up(&property.key) {
                Lookup::Used(key) if key.change == Change::AtRunTime => {
                    set(&mut next, key, &property.value, Origin::Request)?;
                    changed.push(key);
                }
                Lookup::Unknown(nearest) => {
                    return Err(ConfigError::UnknownKey {
                        at: Origin::Request,
                        key: property.key,
                        nearest,
                    });
                }
                Lookup::Used(_)
                | Lookup::NotYet(..)
                | Lookup::CommitLogPath
                | Lookup::WithoutEffect => {
                    return Err(ConfigError::Fixed(property.key));
                }
            }
        }
        check(&next)?;
        changed.retain(|key| key.text(self) != key.text(&next));
        let mut names: Vec<&'static str> = changed.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        *self = next;
        Ok(names)
    }
}

/// Why settings were not changed at run time.
pub type UpdateError = ConfigError;
