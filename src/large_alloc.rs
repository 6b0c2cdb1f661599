//! Counts large allocations: the way of a message makes none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocations above this size are counted, in bytes.
pub const LARGE_BYTES: usize = 128 * 1024;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of large allocations for each thread.
pub struct CountLarge;

/// Large allocations of the current thread since its start; none are counted where
/// [`CountLarge`] is not the process's allocator.
pub fn on_this_thread() -> u64 {
    COUNT.get()
}

fn count(bytes: usize) {
    if bytes > LARGE_BYTES {
        COUNT.with(|count| count.set(count.get() + 1));
    }
}

// SAFETY: every call goes to the system's allocator as it is; the counter is a plain cell
// without a destructor, and allocates nothing.
unsafe impl GlobalAlloc for CountLarge {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_are_counted_and_small_ones_are_not() {
        let layout = |bytes| Layout::from_size_align(bytes, 8).expect("a layout");
        let before = on_this_thread();
        let (small, large) = (layout(LARGE_BYTES), layout(LARGE_BYTES + 1));
        // SAFETY: the layouts are not empty; what is allocated is given back with the
        // layout that it has.
        unsafe {
            let at = CountLarge.alloc(small);
            assert_eq!(on_this_thread(), before);
            let at = CountLarge.realloc(at, small, LARGE_BYTES + 1);
            assert_eq!(on_this_thread(), before + 1);
            CountLarge.dealloc(at, large);
            CountLarge.dealloc(CountLarge.alloc_zeroed(large), large);
        }
        assert_eq!(on_this_thread(), before + 2);
    }
}
