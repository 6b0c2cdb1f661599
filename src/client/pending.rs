//! What a call of the client returns while it is not over.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::io::Answer;
use super::error::{Error, ErrorKind, Result};
use super::net::Call;

/// The end of a call that has begun: wait for it on this thread with [`Pending::wait`], or as a
/// future in any runtime. Dropped, the call goes on and nobody hears of its end.
#[must_use = "the call has begun; wait for its end, or await it"]
pub struct Pending<T> {
    state: State,
    turn: fn(Answer) -> Option<T>,
}

enum State {
    /// Handed over.
    Call(Call),
    /// More than one step, taken as the future is polled.
    Steps(Pin<Box<dyn Future<Output = Result<Answer>> + Send>>),
    /// Over before it began.
    Refused(Option<Error>),
}

impl<T> Pending<T> {
    pub(crate) fn call(call: Call, turn: fn(Answer) -> Option<T>) -> Pending<T> {
        let state = State::Call(call);
        Pending { state, turn }
    }

    pub(crate) fn steps(
        steps: impl Future<Output = Result<Answer>> + Send + 'static,
        turn: fn(Answer) -> Option<T>,
    ) -> Pending<T> {
        let state = State::Steps(Box::pin(steps));
        Pending { state, turn }
    }

    pub(crate) fn refused(error: Error) -> Pending<T> {
        Pending {
            state: State::Refused(Some(error)),
            turn: |_| None,
        }
    }

    /// Waits on this thread. Do not call it where a runtime's tasks run: await it there.
    ///
    /// # Errors
    /// Those of the call.
    pub fn wait(self) -> Result<T> {
        match self.state {
            State::Call(call) => {
                let answer = call.wait()?;
                (self.turn)(answer).ok_or_else(other_end)
            }
            _ => futures_lite::future::block_on(self),
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let answer = match &mut self.state {
            State::Call(call) => Pin::new(call).poll(cx),
            State::Steps(steps) => steps.as_mut().poll(cx),
            State::Refused(error) => {
                let error = error.take();
                Poll::Ready(Err(error.unwrap_or_else(|| ErrorKind::NotRunning.into())))
            }
        };
        answer.map(|answer| (self.turn)(answer?).ok_or_else(other_end))
    }
}

fn other_end() -> Error {
    let what = "the call ended in another way than it should".to_owned();
    ErrorKind::BadAnswer { what }.into()
}

/// Turns [`Answer::Nothing`].
pub(crate) fn nothing(answer: Answer) -> Option<()> {
    matches!(answer, Answer::Nothing).then_some(())
}
