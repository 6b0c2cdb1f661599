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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody has asked to stop.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for SIGINT and SIGTERM. A second signal ends the process at once.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn on_signals() -> Result<Stop, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The order matters: the first signal finds the flag still down.
            let listened =
                signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
                    .and_then(|_| signal_hook::flag::register(signal, stop.clone()));
            listened.map_err(|error| Failure::failed(format!("signal {signal}: {error}")))?;
        }
        Ok(Stop(stop))
    }

    /// Whether it is so.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

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
