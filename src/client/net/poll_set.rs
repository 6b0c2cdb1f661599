//! The sockets that a thread waits for.

use std::io;
use std::os::fd::RawFd;

use crate::client::core::io::PeerId;

/// Readiness of some sockets, as poll(2) tells it.
///
/// Nobody keeps the descriptors open meanwhile: what is ready is looked up by its [`PeerId`]
/// again, and a descriptor that belongs to something else by now is a wake-up in vain.
#[derive(Default)]
pub(super) struct PollSet {
    fds: Vec<libc::pollfd>,
    /// Of each of `fds`; `None`: not a connection.
    ids: Vec<Option<PeerId>>,
}

impl PollSet {
    /// Takes all out.
    pub fn clear(&mut self) {
        self.fds.clear();
        self.ids.clear();
    }

    /// Waits for one more, to be read, written or both.
    pub fn add(&mut self, id: Option<PeerId>, fd: RawFd, read: bool, write: bool) {
        let (read, write) = (i16::from(read), i16::from(write));
        self.fds.push(libc::pollfd {
            fd,
            events: read * libc::POLLIN + write * libc::POLLOUT,
            revents: 0,
        });
        self.ids.push(id);
    }

    /// Waits until one is ready, so many milliseconds at most. Whether one is.
    pub fn wait(&mut self, ms: u64) -> bool {
        let ms = i32::try_from(ms).unwrap_or(i32::MAX);
        // SAFETY: the kernel reads and writes as many `pollfd`s as are counted.
        let ready = unsafe { libc::poll(self.fds.as_mut_ptr(), self.fds.len() as _, ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            debug_assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
            // What is told of them is old.
            self.fds.iter_mut().for_each(|fd| fd.revents = 0);
        }
        ready > 0
    }

    /// Those that are ready: whose, and whether to be written. One that is at its end is ready
    /// to be read.
    pub fn ready(&self) -> impl Iterator<Item = (Option<PeerId>, bool)> {
        let ready = self.fds.iter().zip(&self.ids);
        ready
            .filter(|(fd, _)| fd.revents != 0)
            .map(|(fd, id)| (*id, fd.revents & libc::POLLOUT != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_ready_is_told_apart() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let id = Some(PeerId { slot: 3, epoch: 1 });
        let mut set = PollSet::default();
        set.add(id, ours.as_raw_fd(), true, false);
        assert!(!set.wait(1));
        assert_eq!(set.ready().count(), 0);
        theirs.write_all(b"x").unwrap();
        assert!(set.wait(1000));
        assert_eq!(set.ready().collect::<Vec<_>>(), [(id, false)]);
        set.add(None, ours.as_raw_fd(), false, true);
        assert!(set.wait(0));
        assert_eq!(set.ready().collect::<Vec<_>>(), [(id, false), (None, true)]);
        set.clear();
        drop(theirs);
        set.add(id, ours.as_raw_fd(), false, false);
        assert!(set.wait(0), "its end is told unasked");
    }
}
