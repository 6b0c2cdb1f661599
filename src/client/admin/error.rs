//! What can go wrong with an operation: typed, with broker, topic and group.

use crate::client::remote::{RemoteError, RemoteFault, ResolveError};
use crate::wire::body::json::JsonError;
use crate::wire::codes::response;
use std::fmt;

/// Why an operation failed, and on what.
#[derive(Debug)]
pub struct AdminError {
    /// What went wrong.
    pub fault: Box<AdminFault>,
    /// Name of the broker, where it is known.
    pub broker: Option<String>,
    /// The topic that was asked about.
    pub topic: Option<String>,
    /// The group that was asked about.
    pub group: Option<String>,
}

/// What went wrong.
#[derive(Debug)]
pub enum AdminFault {
    /// There is no nameserver to ask.
    NoNameserver,
    /// None of the nameservers answered; what was wrong with each.
    Nameservers(Vec<String>),
    /// A name leads to no address.
    Address(ResolveError),
    /// Asking failed, or the answer has another code than 0.
    Remote(RemoteError),
    /// The body of an answer cannot be read.
    Body {
        /// Who answered.
        address: String,
        /// Code of the request.
        request: i32,
        /// What is wrong with it.
        why: JsonError,
    },
    /// An answer that cannot be true: a route without an address, a queue number below 0, ...
    Unsound {
        /// Who answered.
        address: String,
        /// What it said.
        what: String,
    },
    /// What was asked about is not there.
    NotFound {
        /// What kind of thing, e.g. `topic`.
        what: &'static str,
        /// Its name.
        name: String,
    },
}

impl AdminError {
    /// Something that is not there.
    pub fn not_found(what: &'static str, name: impl Into<String>) -> AdminError {
        AdminFault::NotFound {
            what,
            name: name.into(),
        }
        .into()
    }

    /// An answer that cannot be true.
    pub fn unsound(address: impl fmt::Display, what: impl Into<String>) -> AdminError {
        AdminFault::Unsound {
            address: address.to_string(),
            what: what.into(),
        }
        .into()
    }

    /// Says which topic it is about.
    #[must_use]
    pub fn topic(mut self, topic: &str) -> AdminError {
        self.topic = Some(topic.to_owned());
        self
    }

    /// Says which group it is about.
    #[must_use]
    pub fn group(mut self, group: &str) -> AdminError {
        self.group = Some(group.to_owned());
        self
    }

    /// Says which broker it is about.
    #[must_use]
    pub fn broker(mut self, broker: &str) -> AdminError {
        self.broker = Some(broker.to_owned());
        self
    }

    /// The code of the answer, where there is one.
    pub fn code(&self) -> Option<i32> {
        match &*self.fault {
            AdminFault::Remote(RemoteError {
                fault: RemoteFault::Refused { code, .. },
                ..
            }) => Some(*code),
            _ => None,
        }
    }

    /// Whether what was asked about is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(*self.fault, AdminFault::NotFound { .. })
            || matches!(
                self.code(),
                Some(
                    response::TOPIC_NOT_EXIST
                        | response::QUERY_NOT_FOUND
                        | response::SUBSCRIPTION_GROUP_NOT_EXIST
                        | response::CONSUMER_NOT_ONLINE
                )
            )
    }

    /// Whether the same may succeed when it is tried again, elsewhere or later.
    pub fn is_retryable(&self) -> bool {
        match &*self.fault {
            AdminFault::Nameservers(_) => true,
            AdminFault::Remote(error) => match &error.fault {
                RemoteFault::Refused { code, .. } => matches!(
                    *code,
                    response::SYSTEM_ERROR
                        | response::SYSTEM_BUSY
                        | response::SERVICE_NOT_AVAILABLE
                ),
                RemoteFault::Frame(_) | RemoteFault::Header(_) => false,
                _ => true,
            },
            _ => false,
        }
    }
}

impl From<AdminFault> for AdminError {
    fn from(fault: AdminFault) -> AdminError {
        AdminError {
            fault: Box::new(fault),
            broker: None,
            topic: None,
            group: None,
        }
    }
}

impl From<RemoteError> for AdminError {
    fn from(error: RemoteError) -> AdminError {
        AdminFault::Remote(error).into()
    }
}

impl From<ResolveError> for AdminError {
    fn from(error: ResolveError) -> AdminError {
        AdminFault::Address(error).into()
    }
}

impl fmt::Display for AdminFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminFault::NoNameserver => f.write_str("no nameserver is given"),
            AdminFault::Nameservers(faults) => {
                write!(f, "no nameserver answers: {}", faults.join("; "))
            }
            AdminFault::Address(error) => error.fmt(f),
            AdminFault::Remote(RemoteError {
                address,
                fault:
                    RemoteFault::Refused {
                        request,
                        code,
                        remark,
                    },
            }) => {
                write!(
                    f,
                    "{address} answered request {request} with code {code}{}",
                    response_name(*code)
                )?;
                match remark.lines().next().unwrap_or_default() {
                    "" => Ok(()),
                    remark => write!(f, ": {remark}"),
                }
            }
            AdminFault::Remote(error) => error.fmt(f),
            AdminFault::Body {
                address,
                request,
                why,
            } => write!(f, "answer of {address} to request {request}: {why}"),
            AdminFault::Unsound { address, what } => write!(f, "{address} says {what}"),
            AdminFault::NotFound { what, name } => write!(f, "there is no {what} {name:?}"),
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = [
            ("group", &self.group),
            ("topic", &self.topic),
            ("broker", &self.broker),
        ];
        let mut about = about
            .iter()
            .filter_map(|(what, name)| Some((what, name.as_deref()?)));
        if let Some((what, name)) = about.next() {
            write!(f, "{what} {name:?}")?;
            for (what, name) in about {
                write!(f, ", {what} {name:?}")?;
            }
            f.write_str(": ")?;
        }
        self.fault.fmt(f)
    }
}

impl std::error::Error for AdminError {}

/// ` (NAME)` of a response code, empty for one that has no name here.
fn response_name(code: i32) -> &'static str {
    match code {
        response::SYSTEM_ERROR => " (SYSTEM_ERROR)",
        response::SYSTEM_BUSY => " (SYSTEM_BUSY)",
        response::REQUEST_CODE_NOT_SUPPORTED => " (REQUEST_CODE_NOT_SUPPORTED)",
        response::FLUSH_DISK_TIMEOUT => " (FLUSH_DISK_TIMEOUT)",
        response::FLUSH_SLAVE_TIMEOUT => " (FLUSH_SLAVE_TIMEOUT)",
        response::MESSAGE_ILLEGAL => " (MESSAGE_ILLEGAL)",
        response::SERVICE_NOT_AVAILABLE => " (SERVICE_NOT_AVAILABLE)",
        response::VERSION_NOT_SUPPORTED => " (VERSION_NOT_SUPPORTED)",
        response::NO_PERMISSION => " (NO_PERMISSION)",
        response::TOPIC_NOT_EXIST => " (TOPIC_NOT_EXIST)",
        response::QUERY_NOT_FOUND => " (QUERY_NOT_FOUND)",
        response::SUBSCRIPTION_GROUP_NOT_EXIST => " (SUBSCRIPTION_GROUP_NOT_EXIST)",
        response::INVALID_PARAMETER => " (INVALID_PARAMETER)",
        response::CONSUMER_NOT_ONLINE => " (CONSUMER_NOT_ONLINE)",
        response::CONSUME_MSG_TIMEOUT => " (CONSUME_MSG_TIMEOUT)",
        _ => "",
    }
}
