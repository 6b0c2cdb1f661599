//! What wakes a thread while it waits for its sockets.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// An eventfd that is written only while its thread waits, or is about to.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    waits: AtomicBool,
}

impl Bell {
    /// A bell.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn new() -> io::Result<Bell> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let waits = AtomicBool::new(false);
        Ok(Bell { fd, waits })
    }

    /// Readable once it was rung.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Wakes the thread, after something was left for it.
    pub fn ring(&self) {
        // Either the thread sees what was left, or this one that the thread waits.
        fence(Ordering::SeqCst);
        if self.waits.load(Ordering::Relaxed) && self.waits.swap(false, Ordering::Relaxed) {
            let one = 1_u64;
            // SAFETY: the kernel reads the eight bytes of `one`. It fails where it was rung
            // 2^64 - 1 times in vain.
            unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
        }
    }

    /// The thread is about to wait, and looks once more after this whether it need.
    pub fn listen(&self) {
        self.waits.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread is awake.
    pub fn awake(&self) {
        self.waits.store(false, Ordering::Relaxed);
    }

    /// It is readable: makes it silent again.
    pub fn silence(&self) {
        let mut count = 0_u64;
        // SAFETY: the kernel writes the eight bytes of `count`.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn nothing_that_is_left_stays_unseen() {
        let (bell, left) = (Arc::new(Bell::new().unwrap()), Arc::new(AtomicU32::new(0)));
        let (bell_of, left_of) = (bell.clone(), left.clone());
        const ALL: u32 = 20_000;
        let thread = std::thread::spawn(move || {
            for _ in 0..ALL {
                left_of.fetch_add(1, Ordering::Relaxed);
                bell_of.ring();
            }
        });
        let mut seen = 0;
        while seen < ALL {
            bell.listen();
            let now = left.load(Ordering::Relaxed);
            if now == seen {
                let mut poll = libc::pollfd {
                    fd: bell.fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one `pollfd` is given and counted.
                let ready = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
                assert_eq!(ready, 1, "unseen after {seen}");
                bell.silence();
            }
            bell.awake();
            seen = now;
        }
        thread.join().unwrap();
    }
}
