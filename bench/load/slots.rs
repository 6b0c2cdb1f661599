//! Requests of one connection that wait for their answers.

use super::template::OPAQUE_MIN;

/// A request that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// When it was to be sent, in ns.
    pub due: u64,
    /// When it was sent, in ns.
    pub sent: u64,
    /// Where to.
    pub place: u32,
    /// Sequence of its first message.
    pub first: u32,
    /// Bytes of its bodies.
    pub bytes: u32,
}

/// A fixed number of places for requests, each found by the number of its answer.
#[derive(Clone, Debug)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Those that wait, in the order in which they were sent, linked through their slots.
    oldest: u32,
    newest: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    open: Option<Open>,
    /// Those sent before and after it.
    older: u32,
    newer: u32,
    /// Counts the requests that had this place, so that no answer is taken for a later one's.
    generation: u32,
}

impl Slots {
    /// Room for `count` requests, 1 at least.
    pub fn new(count: usize) -> Slots {
        let count = count.clamp(1, 1 << 20) as u32;
        Slots {
            slots: vec![
                Slot {
                    open: None,
                    older: NONE,
                    newer: NONE,
                    generation: 0,
                };
                count as usize
            ],
            free: (0..count).rev().collect(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Requests that wait.
    pub fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is room for another.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a request in. Returns its number; `None` where there is no room.
    pub fn put(&mut self, open: Open) -> Option<i32> {
        let index = self.free.pop()?;
        let count = self.slots.len() as u32;
        let slot = &mut self.slots[index as usize];
        let generations = (i32::MAX - OPAQUE_MIN) as u32 / count;
        slot.generation = (slot.generation + 1) % generations;
        slot.open = Some(open);
        (slot.older, slot.newer) = (self.newest, NONE);
        let opaque = OPAQUE_MIN + (slot.generation * count + index) as i32;
        match self.slots.get_mut(self.newest as usize) {
            Some(before) => before.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
        Some(opaque)
    }

    /// The request with this number leaves; `None` where none such waits.
    pub fn take(&mut self, opaque: i32) -> Option<Open> {
        let number = u32::try_from(opaque.checked_sub(OPAQUE_MIN)?).ok()?;
        let count = self.slots.len() as u32;
        let slot = &mut self.slots[(number % count) as usize];
        if slot.generation != number / count {
            return None;
        }
        let open = slot.open.take()?;
        let (older, newer) = (slot.older, slot.newer);
        match self.slots.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
        self.free.push(number % count);
        Some(open)
    }

    /// All requests leave.
    pub fn take_all(&mut self) -> Vec<Open> {
        (self.oldest, self.newest) = (NONE, NONE);
        let mut all = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(open) = slot.open.take() {
                all.push(open);
                self.free.push(index as u32);
            }
        }
        all
    }

    /// When the oldest of those that wait was sent.
    pub fn oldest(&self) -> Option<u64> {
        let slot = self.slots.get(self.oldest as usize)?;
        slot.open.map(|open| open.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(due: u64) -> Open {
        Open {
            due,
            sent: due,
            ..Open::default()
        }
    }

    #[test]
    fn answers_find_their_requests_once() {
        let mut slots = Slots::new(2);
        let one = slots.put(open(1)).expect("room");
        let two = slots.put(open(2)).expect("room");
        assert_ne!(one, two);
        assert!(!slots.has_room());
        assert_eq!(slots.put(open(3)), None);
        assert_eq!(slots.take(two), Some(open(2)));
        assert_eq!(slots.take(two), None);
        let three = slots.put(open(3)).expect("room");
        assert_ne!(three, two);
        assert_eq!(slots.take(two), None);
        assert_eq!((slots.open(), slots.oldest()), (2, Some(1)));
        assert_eq!(slots.take(0), None);
        assert_eq!(slots.take(i32::MIN), None);
        assert_eq!(slots.take_all().len(), 2);
        assert_eq!((slots.open(), slots.oldest()), (0, None));
        assert_eq!(slots.take(one), None);
    }

    #[test]
    fn the_oldest_is_known_in_any_order_of_answers() {
        let mut slots = Slots::new(4);
        let put = |slots: &mut Slots, sent| slots.put(open(sent)).expect("room");
        let numbers: Vec<i32> = (1..=4).map(|sent| put(&mut slots, sent)).collect();
        for (answered, oldest) in [(1, Some(1)), (0, Some(3)), (3, Some(3))] {
            assert!(slots.take(numbers[answered]).is_some());
            assert_eq!(slots.oldest(), oldest);
        }
        let fifth = put(&mut slots, 5);
        assert!(slots.take(numbers[2]).is_some());
        assert_eq!(slots.oldest(), Some(5));
        assert!(slots.take(fifth).is_some());
        assert_eq!(slots.oldest(), None);
        put(&mut slots, 6);
        slots.take_all();
        put(&mut slots, 7);
        assert_eq!((slots.oldest(), slots.open()), (Some(7), 1));
    }

    #[test]
    fn numbers_have_ten_digits_for_ever() {
        let mut slots = Slots::new(1 << 20);
        for _ in 0..5000 {
            let opaque = slots.put(open(1)).expect("room");
            assert!(opaque >= OPAQUE_MIN);
            assert!(slots.take(opaque).is_some());
        }
    }
}
