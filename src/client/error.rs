//! What can go wrong for a user of the client: one type, which says what, where, how long
//! it took, and whether another try can help.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::wire::codes::response;

/// What every call of the client answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Codes with which Java's producer asks another broker
/// (`DefaultMQProducer.retryResponseCodes`), and 1500 as its own newer clients do.
const RETRYABLE: [i32; 8] = [
    response::TOPIC_NOT_EXIST,
    response::SERVICE_NOT_AVAILABLE,
    response::SYSTEM_ERROR,
    response::SYSTEM_BUSY,
    response::NO_PERMISSION,
    204,
    205,
    1500,
];

/// Whether a broker that answers with this code may be better tomorrow, or another one today.
pub fn is_retryable_code(code: i32) -> bool {
    RETRYABLE.contains(&code)
}

/// Why a call failed.
///
/// [`Error::kind`] says what happened; the rest says where.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    place: Place,
    elapsed_ms: u64,
    tries: u32,
}

/// Where something went wrong, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The topic.
    pub topic: Option<Arc<str>>,
    /// The group.
    pub group: Option<Arc<str>>,
    /// Name of the broker.
    pub broker_name: Option<Arc<str>>,
    /// Address of the broker or nameserver, `host:port`.
    pub address: Option<Arc<str>>,
    /// Number of the queue.
    pub queue_id: Option<i32>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is not within its bounds.
    Settings {
        /// Name of the setting.
        name: &'static str,
        /// What is wrong, with the value and the limit.
        what: String,
    },
    /// The message is not one that can be sent; nothing was.
    Message {
        /// What is wrong, with the value and the limit.
        what: String,
    },
    /// No nameserver is known.
    NoNameServer,
    /// No nameserver answered; with what each one did.
    NameServers {
        /// What each address did, in the order in which they were asked.
        tried: Vec<String>,
    },
    /// No nameserver knows the topic, and there is no template to make it from.
    TopicNotFound,
    /// A nameserver's answer cannot be used.
    BadRoute {
        /// What is wrong with it.
        what: String,
    },
    /// The topic is there, but it has no queue that this call could use.
    NoQueue {
        /// What was looked for.
        what: String,
    },
    /// No connection to the address.
    Connect {
        /// What the system said.
        why: String,
    },
    /// The connection ended before the answer came.
    Disconnected {
        /// What is known of the end.
        why: String,
    },
    /// No answer in time.
    Timeout {
        /// The time that was given, ms.
        limit_ms: u64,
    },
    /// The broker or nameserver answered with an error.
    Answered {
        /// Its response code.
        code: i32,
        /// Its words.
        remark: String,
    },
    /// The answer makes no sense.
    BadAnswer {
        /// What is wrong with it.
        what: String,
    },
    /// A batch that is stored as one message cannot be taken apart.
    InnerBatch {
        /// What is wrong with it.
        what: String,
    },
    /// So much is on its way that nothing more is taken.
    TooMuchInFlight {
        /// What is bounded.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// The client, producer or consumer is not started, or stopped already.
    NotRunning,
    /// There is one of this group in this client already.
    GroupExists,
    /// The file of offsets of a broadcasting consumer.
    OffsetFile {
        /// Its path.
        path: String,
        /// What the system said, or what is wrong with its content.
        why: String,
    },
    /// The call makes no sense in the state that the consumer is in.
    State {
        /// Why not.
        what: String,
    },
    /// The client's own thread could not be started or has ended.
    Thread {
        /// What is known.
        why: String,
    },
}

impl Error {
    /// An error of which nothing but its kind is known yet.
    pub fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Inner {
            kind,
            place: Place::default(),
            elapsed_ms: 0,
            tries: 0,
        }))
    }

    /// A message that cannot be sent.
    pub fn message(what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Message { what: what.into() })
    }

    /// A setting that is out of its bounds.
    pub(crate) fn setting(name: &'static str, what: impl Into<String>) -> Error {
        let what = what.into();
        Error::new(ErrorKind::Settings { name, what })
    }

    /// Says where.
    #[must_use]
    pub fn at(mut self, place: Place) -> Error {
        let mine = &mut self.0.place;
        mine.topic = place.topic.or(mine.topic.take());
        mine.group = place.group.or(mine.group.take());
        mine.broker_name = place.broker_name.or(mine.broker_name.take());
        mine.address = place.address.or(mine.address.take());
        mine.queue_id = place.queue_id.or(mine.queue_id.take());
        self
    }

    /// Says which topic.
    #[must_use]
    pub fn of_topic(self, topic: &Arc<str>) -> Error {
        self.at(Place {
            topic: Some(topic.clone()),
            ..Place::default()
        })
    }

    /// Says which group.
    #[must_use]
    pub fn of_group(self, group: &Arc<str>) -> Error {
        self.at(Place {
            group: Some(group.clone()),
            ..Place::default()
        })
    }

    /// Says which address.
    #[must_use]
    pub fn of_address(self, address: &Arc<str>) -> Error {
        self.at(Place {
            address: Some(address.clone()),
            ..Place::default()
        })
    }

    /// Says how long it took and how often it was tried.
    #[must_use]
    pub fn after(mut self, elapsed_ms: u64, tries: u32) -> Error {
        self.0.elapsed_ms = elapsed_ms;
        self.0.tries = tries;
        self
    }

    /// What happened.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Where it happened.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// How long the call took until it failed, ms.
    pub fn elapsed_ms(&self) -> u64 {
        self.0.elapsed_ms
    }

    /// How often a send was tried; 0 where it never came to it.
    pub fn tries(&self) -> u32 {
        self.0.tries
    }

    /// The response code, where there was one.
    pub fn code(&self) -> Option<i32> {
        match self.0.kind {
            ErrorKind::Answered { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anything being changed. A send that
    /// timed out or was cut off may have been stored all the same: whoever sends it again
    /// may send it twice.
    pub fn is_retryable(&self) -> bool {
        match &self.0.kind {
            ErrorKind::NameServers { .. }
            | ErrorKind::BadRoute { .. }
            | ErrorKind::NoQueue { .. }
            | ErrorKind::Connect { .. }
            | ErrorKind::Disconnected { .. }
            | ErrorKind::Timeout { .. }
            | ErrorKind::BadAnswer { .. }
            | ErrorKind::TooMuchInFlight { .. }
            | ErrorKind::OffsetFile { .. } => true,
            ErrorKind::Answered { code, .. } => is_retryable_code(*code),
            ErrorKind::Settings { .. }
            | ErrorKind::Message { .. }
            | ErrorKind::InnerBatch { .. }
            | ErrorKind::NoNameServer
            | ErrorKind::TopicNotFound
            | ErrorKind::NotRunning
            | ErrorKind::GroupExists
            | ErrorKind::State { .. }
            | ErrorKind::Thread { .. } => false,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Settings { name, what } => write!(f, "setting {name}: {what}"),
            ErrorKind::Message { what } => write!(f, "message refused: {what}"),
            ErrorKind::NoNameServer => f.write_str(
                "no nameserver is known: set `name_servers`, or NAMESRV_ADDR in the environment",
            ),
            ErrorKind::NameServers { tried } => {
                write!(f, "no nameserver answered: {}", tried.join("; "))
            }
            ErrorKind::TopicNotFound => f.write_str(
                "no nameserver knows the topic, and no broker lets topics be made by sending",
            ),
            ErrorKind::BadRoute { what } => {
                write!(f, "the nameserver's route cannot be used: {what}")
            }
            ErrorKind::NoQueue { what } => f.write_str(what),
            ErrorKind::Connect { why } => write!(f, "cannot connect: {why}"),
            ErrorKind::Disconnected { why } => write!(f, "connection lost: {why}"),
            ErrorKind::Timeout { limit_ms } => write!(f, "no answer within {limit_ms} ms"),
            ErrorKind::Answered { code, remark } => {
                write!(f, "answered with code {code}")?;
                if !remark.is_empty() {
                    f.write_str(": ")?;
                }
                // What others write may be made to confuse a terminal or a log.
                remark.chars().try_for_each(|c| match c.is_control() {
                    true => write!(f, "{}", c.escape_default()),
                    false => f.write_char(c),
                })
            }
            ErrorKind::BadAnswer { what } => write!(f, "the answer makes no sense: {what}"),
            ErrorKind::InnerBatch { what } => write!(
                f,
                "an inner batch cannot be taken apart, and comes as the one message as which it \
                 is stored: {what}"
            ),
            ErrorKind::TooMuchInFlight { what, limit } => {
                write!(f, "too much in flight: {what} is bounded by {limit}")
            }
            ErrorKind::NotRunning => f.write_str("not started, or stopped already"),
            ErrorKind::GroupExists => {
                f.write_str("this client has a member of the group already; give it another name")
            }
            ErrorKind::OffsetFile { path, why } => write!(f, "offset file {path}: {why}"),
            ErrorKind::State { what } => f.write_str(what),
            ErrorKind::Thread { why } => write!(f, "the client's thread: {why}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            kind,
            place,
            elapsed_ms,
            tries,
        } = &*self.0;
        write!(f, "{kind}")?;
        let mut first = true;
        let mut note = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            let open = if first { " (" } else { ", " };
            first = false;
            write!(f, "{open}{name} {value}")
        };
        if let Some(topic) = &place.topic {
            note(f, "topic", topic)?;
        }
        if let Some(group) = &place.group {
            note(f, "group", group)?;
        }
        if let Some(broker) = &place.broker_name {
            note(f, "broker", broker)?;
        }
        if let Some(queue) = &place.queue_id {
            note(f, "queue", queue)?;
        }
        if let Some(address) = &place.address {
            note(f, "at", address)?;
        }
        if *tries > 0 {
            note(f, "tries", tries)?;
        }
        if *elapsed_ms > 0 {
            note(f, "after ms", elapsed_ms)?;
        }
        if first { Ok(()) } else { f.write_str(")") }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error::new(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_and_where() {
        let place = Place {
            topic: Some("orders".into()),
            broker_name: Some("broker-a".into()),
            queue_id: Some(3),
            address: Some("10.0.0.1:10911".into()),
            ..Place::default()
        };
        let answered = ErrorKind::Answered {
            code: 14,
            remark: "the disk is full".into(),
        };
        let error = Error::new(answered).at(place).after(12, 3);
        assert_eq!(
            error.to_string(),
            "answered with code 14: the disk is full (topic orders, broker broker-a, queue 3, \
             at 10.0.0.1:10911, tries 3, after ms 12)"
        );
        assert!(error.is_retryable());
        assert_eq!(error.code(), Some(14));
    }

    #[test]
    fn only_what_may_pass_is_retryable() {
        let answered = |code| {
            let remark = String::new();
            Error::new(ErrorKind::Answered { code, remark }).is_retryable()
        };
        for code in [17, 14, 1, 2, 16, 204, 205, 1500] {
            assert!(answered(code), "{code}");
        }
        for code in [13, 29, 3, 0, -1] {
            assert!(!answered(code), "{code}");
        }
        assert!(!Error::message("too long").is_retryable());
        assert!(Error::new(ErrorKind::Timeout { limit_ms: 1 }).is_retryable());
    }
}
