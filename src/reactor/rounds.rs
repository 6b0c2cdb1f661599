//! Rounds: from one look for what has come to the next. In a round every task that is ready runs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::executor::next_turn;

thread_local! {
    static ROUNDS: Rounds = const {
        Rounds {
            now: Cell::new(1),
            taken: Cell::new(0),
            waiting: RefCell::new(VecDeque::new()),
        }
    };
}

struct Rounds {
    /// The one under way.
    now: Cell<u64>,
    /// The last one that somebody took for much work.
    taken: Cell<u64>,
    /// Those who wait for one, in their order.
    waiting: RefCell<VecDeque<u64>>,
}

/// The next round begins.
pub(super) fn begin() {
    ROUNDS.with(|rounds| rounds.now.set(rounds.now.get() + 1));
}

/// Whether somebody has taken the round under way for much work.
pub(super) fn is_taken() -> bool {
    ROUNDS.with(|rounds| rounds.taken.get() == rounds.now.get())
}

/// Who has much to do goes on in a round that nobody else has taken for that: what is ready,
/// and what comes meanwhile, waits for one of them and not for all.
pub async fn round_of_its_own() {
    let wait = Wait::begin();
    while !wait.is_first() || is_taken() {
        next_turn().await;
    }
    ROUNDS.with(|rounds| rounds.taken.set(rounds.now.get()));
}

/// A place among those who wait for a round: higher than those in front of it.
struct Wait(u64);

impl Wait {
    fn begin() -> Wait {
        ROUNDS.with(|rounds| {
            let mut waiting = rounds.waiting.borrow_mut();
            let place = waiting.back().map_or(0, |last| last + 1);
            waiting.push_back(place);
            Wait(place)
        })
    }

    fn is_first(&self) -> bool {
        ROUNDS.with(|rounds| rounds.waiting.borrow().front() == Some(&self.0))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        ROUNDS.with(|rounds| {
            let mut waiting = rounds.waiting.borrow_mut();
            waiting.retain(|place| *place != self.0);
        });
    }
}
