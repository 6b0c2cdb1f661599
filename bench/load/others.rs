//! Senders in other processes: when nothing more of theirs is to be expected.

use crate::bench::verify::stamp::Stamp;
use std::collections::HashSet;

/// Senders of one queue that are known by the stamps of their messages.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Those (run, producer) of whom nothing has come that was due after the window.
    behind: HashSet<(u32, u32)>,
    any_passed: bool,
}

impl Others {
    /// A message came. `until` is the end of the window, in ns.
    pub fn note(&mut self, stamp: &Stamp, until: u64) {
        let sender = (stamp.run, stamp.producer);
        if stamp.due < until {
            self.behind.insert(sender);
        } else {
            self.behind.remove(&sender);
            self.any_passed = true;
        }
    }

    /// Whether all senders are beyond the window. Not so while no sender is known: a queue in
    /// which nothing arrives may be one that stalls.
    pub fn have_passed(&self) -> bool {
        self.any_passed && self.behind.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_known_senders_must_be_beyond_the_window() {
        let mut others = Others::default();
        let mut note = |producer, due| {
            let stamp = Stamp {
                run: 1,
                producer,
                place: 0,
                sequence: 0,
                floor: 0,
                due,
            };
            others.note(&stamp, 100);
            others.have_passed()
        };
        assert!(!note(1, 50));
        assert!(!note(2, 99));
        assert!(!note(1, 100));
        // Overtaken while in flight.
        assert!(!note(1, 98));
        assert!(!note(2, 101));
        assert!(note(1, 120));
        assert!(!Others::default().have_passed());
    }
}
