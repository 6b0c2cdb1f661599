//! Stopping: of a producer, and of the client.

use super::io::{Answer, Command, Now, Output, Ticket};
use super::{Core, Error, done};
use crate::client::error::ErrorKind;

/// How far the client is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// Waiting for what is in hand, until the deadline, ms.
    Stopping {
        ticket: Ticket,
        deadline: u64,
    },
    Stopped,
}

impl Life {
    pub fn next_wake(self) -> Option<u64> {
        match self {
            Life::Stopping { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// Whether a command comes too late. What ends something is taken until the end.
    pub fn refuses(self, command: &Command) -> bool {
        match self {
            Life::Running => false,
            Life::Stopping { .. } => !matches!(
                command,
                Command::Consumed { .. }
                    | Command::OffsetsLoaded { .. }
                    | Command::Unpolled(_)
                    | Command::OffsetsStored { .. }
            ),
            Life::Stopped => true,
        }
    }
}

impl Core {
    pub(super) fn shutdown(
        &mut self,
        now: Now,
        ticket: Ticket,
        wait_ms: u64,
        out: &mut Vec<Output>,
    ) {
        let deadline = now.at.saturating_add(wait_ms);
        self.life = Life::Stopping { ticket, deadline };
        self.producers.stop_all(deadline);
        self.stop_consumers(now, wait_ms, out);
    }

    pub(super) fn pass_life(&mut self, now: Now, out: &mut Vec<Output>) {
        self.pass_stopping_producers(now, out);
        let Life::Stopping { ticket, deadline } = self.life else {
            return;
        };
        let quiet = self.producers.is_empty() && !self.has_consumers();
        if !quiet && now.at < deadline {
            return;
        }
        self.life = Life::Stopped;
        self.end_invokes(out);
        self.end_queue_waits(out);
        let mut left = Vec::new();
        self.requests.drain_all(&mut left);
        for pending in left {
            let error = Error::new(ErrorKind::NotRunning);
            self.request_failed(now, pending, error, true, out);
        }
        done(out, ticket, Ok(Answer::Nothing));
        out.push(Output::Stopped);
    }
}
