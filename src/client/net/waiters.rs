//! Who waits for the end of which command.

use crate::client::core::io::{Answer, Ticket};
use crate::client::error::Result;
use crate::client::in_flight::Room;
use crate::client::one_shot::Answering;

/// What a callback is called with.
pub(crate) type Callback = Box<dyn FnOnce(Result<Answer>) + Send>;

/// How one waits.
pub(crate) enum How {
    /// A thread or a task.
    Answering(Answering<Result<Answer>>),
    /// A function, to be run on a thread for callbacks.
    Callback(Callback),
    /// Nobody does.
    Nobody,
}

/// Who waits for the end of a command, and the room that it takes until then.
pub(crate) struct Waiter {
    pub how: How,
    pub room: Option<Room>,
}

impl Waiter {
    /// Nobody waits.
    pub const NOBODY: Waiter = Waiter {
        how: How::Nobody,
        room: None,
    };
}

/// Waiters by ticket: a place in a table, and how often it was used before.
#[derive(Default)]
pub(super) struct Waiters {
    places: Vec<(u32, Option<Waiter>)>,
    free: Vec<u32>,
}

impl Waiters {
    /// A ticket for one who waits.
    pub fn insert(&mut self, waiter: Waiter) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (used, slot) = &mut self.places[place as usize];
        *slot = Some(waiter);
        Ticket(u64::from(*used) << 32 | u64::from(place))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Who waits with this ticket; nobody a second time.
    pub fn take(&mut self, ticket: Ticket) -> Option<Waiter> {
        let (place, count) = (ticket.0 as u32, (ticket.0 >> 32) as u32);
        let (used, slot) = self.places.get_mut(place as usize)?;
        let waiter = slot.take_if(|_| *used == count)?;
        *used = used.wrapping_add(1);
        self.free.push(place);
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_its_place_is_used_again() {
        let mut waiters = Waiters::default();
        let first = waiters.insert(Waiter::NOBODY);
        let second = waiters.insert(Waiter::NOBODY);
        assert_ne!(first, second);
        assert!(waiters.take(first).is_some());
        assert!(waiters.take(first).is_none());
        let third = waiters.insert(Waiter::NOBODY);
        assert_ne!(third, first);
        assert!(waiters.take(first).is_none());
        assert!(waiters.take(third).is_some());
        assert!(waiters.take(Ticket(7)).is_none());
        assert_eq!(waiters.places.len(), 2);
    }
}
