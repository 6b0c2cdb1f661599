//! Why a command has not done what it should, and with which exit code it ends.

use super::{Document, clean};
use ringmq::client::admin::{AdminError, AdminFault};
use ringmq::client::remote::{RemoteError, RemoteFault};
use ringmq::wire::codes::response;
use std::fmt;

/// Exit codes of the commands that ask brokers and nameservers.
pub mod exit {
    /// Not done: nobody could be asked, or the answer makes no sense.
    pub const FAILED: u8 = 1;
    /// The command line is wrong, or a confirmation is missing.
    pub const USAGE: u8 = 2;
    /// What was asked for is not there: a topic, group, broker, message, ...
    pub const NOT_FOUND: u8 = 3;
    /// Refused by a broker or nameserver, or done by some and not by others.
    pub const REFUSED: u8 = 4;
}

/// What a command comes to.
pub type Outcome = Result<Document, Failure>;

/// Why not, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One of [`exit`].
    pub code: u8,
    /// What went wrong.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl Failure {
    /// Something that the command line got wrong.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(exit::USAGE, message)
    }

    /// Something that is not there.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(exit::NOT_FOUND, message)
    }

    /// Something that some brokers did not answer, or refused.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::new(exit::REFUSED, message)
    }

    /// Something else.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::new(exit::FAILED, message)
    }

    fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&clean(&self.message))?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  {}", clean(hint))?;
        }
        Ok(())
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        let code = match &*error.fault {
            _ if error.is_not_found() => exit::NOT_FOUND,
            AdminFault::Address(_) | AdminFault::NoNameserver => exit::USAGE,
            _ if error.code().is_some() => exit::REFUSED,
            _ => exit::FAILED,
        };
        Failure {
            code,
            hint: next_step(&error).map(str::to_owned),
            message: error.to_string(),
        }
    }
}

/// What to do about an error.
fn next_step(error: &AdminError) -> Option<&'static str> {
    const UNREACHABLE: &str = "is it running, and reachable from here? -n (or NAMESRV_ADDR) names \
                               the nameservers, -b a broker";
    Some(match &*error.fault {
        AdminFault::NoNameserver => "give one with -n HOST:PORT or in NAMESRV_ADDR",
        AdminFault::Nameservers(_) | AdminFault::Address(_) => UNREACHABLE,
        AdminFault::Remote(RemoteError { fault, .. }) => match fault {
            RemoteFault::Connect(_) | RemoteFault::Closed => UNREACHABLE,
            RemoteFault::Silent(_) => "--timeout waits longer",
            RemoteFault::Frame(_) | RemoteFault::Header(_) => {
                "is that the port of a broker or nameserver? brokers listen on 10911, nameservers \
                 on 9876 unless they are told otherwise"
            }
            RemoteFault::Refused { code, .. } => match *code {
                response::REQUEST_CODE_NOT_SUPPORTED => {
                    "it has no such operation; a broker says so, too, when it is asked as a \
                     nameserver (-n)"
                }
                response::SYSTEM_BUSY => "it has too much to do: try again later",
                response::SERVICE_NOT_AVAILABLE => {
                    "it takes no messages now; `ringmq admin brokerStatus` shows its disk"
                }
                response::NO_PERMISSION if error.topic.is_some() => {
                    "its settings forbid it; `ringmq admin topicRoute` shows a topic's permissions"
                }
                response::TOPIC_NOT_EXIST => "`ringmq admin topicList` shows the topics",
                response::SUBSCRIPTION_GROUP_NOT_EXIST => {
                    "`ringmq admin consumerProgress` shows the groups"
                }
                _ => return None,
            },
            _ => return None,
        },
        AdminFault::NotFound { what, .. } => match *what {
            "topic" => "`ringmq admin topicList` shows the topics",
            "broker" | "cluster" => "`ringmq admin clusterList` shows clusters and brokers",
            "group" => "`ringmq admin consumerProgress` shows the groups",
            "nameserver at" => "a nameserver is given as HOST:PORT, several with ; between them",
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i32) -> Failure {
        AdminError::from(RemoteError {
            address: ([127, 0, 0, 1], 1).into(),
            fault: RemoteFault::Refused {
                request: 17,
                code,
                remark: "no\x1b[2J".to_owned(),
            },
        })
        .into()
    }

    #[test]
    fn exit_codes_tell_the_kinds_apart() {
        assert_eq!(refused(17).code, exit::NOT_FOUND);
        assert_eq!(refused(16).code, exit::REFUSED);
        assert_eq!(refused(3).code, exit::REFUSED);
        let failure = Failure::from(AdminError::from(AdminFault::NoNameserver));
        assert_eq!(failure.code, exit::USAGE);
        let failure = Failure::from(AdminError::from(AdminFault::Nameservers(Vec::new())));
        assert_eq!(failure.code, exit::FAILED);
        assert_eq!(
            Failure::from(AdminError::not_found("topic", "T")).code,
            exit::NOT_FOUND
        );
    }

    #[test]
    fn a_failure_says_what_to_do_and_obeys_nobody() {
        let text = refused(2).to_string();
        assert!(
            text.contains("SYSTEM_BUSY") && text.contains("try again"),
            "{text}"
        );
        assert!(!text.contains('\x1b'), "{text}");
    }
}
