//! `ringmq produce` and `ringmq consume`: messages from and to lines.

mod consume;
mod format;
mod lines;
mod pacing;
mod produce;
mod tail;

pub use consume::ConsumeArgs;
pub use produce::ProduceArgs;

use super::show::{Failure, exit};
use ringmq::client::{Error, ErrorKind};
use ringmq::wire::codes::response;

/// What an error of the client comes to.
pub fn failure(error: &Error) -> Failure {
    let (code, hint) = match error.kind() {
        ErrorKind::Settings { .. } | ErrorKind::Message { .. } | ErrorKind::NoNameServer => {
            (exit::USAGE, None)
        }
        ErrorKind::TopicNotFound => (
            exit::NOT_FOUND,
            Some("`ringmq admin topicList` shows the topics, `updateTopic` makes one"),
        ),
        ErrorKind::Answered { code, .. } => match *code {
            response::TOPIC_NOT_EXIST | response::SUBSCRIPTION_GROUP_NOT_EXIST => {
                (exit::NOT_FOUND, None)
            }
            _ => (exit::REFUSED, None),
        },
        ErrorKind::NameServers { .. } | ErrorKind::Connect { .. } => (
            exit::FAILED,
            Some(
                "is it running, and reachable from here? -n (or NAMESRV_ADDR) names the nameservers",
            ),
        ),
        _ => (exit::FAILED, None),
    };
    Failure {
        code,
        message: error.to_string(),
        hint: hint.map(str::to_owned),
    }
}
