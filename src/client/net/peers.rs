//! Connections, by the core's numbers for them.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::out::Out;
use crate::client::core::io::PeerId;

/// Bytes that wait for one peer above which no more frames are taken from the core for it.
const OUT_BYTES_MAX: usize = 1024 * 1024;

/// One connection.
#[derive(Debug)]
pub(super) struct Peer {
    epoch: u32,
    /// `host:port`, as the core gave it.
    pub address: Arc<str>,
    /// Once it is connected. Its reading task keeps it open.
    fd: Option<RawFd>,
    pub out: Out,
    /// Its socket was full: a task of its own writes now.
    draining: bool,
    /// The core has more frames for it.
    waiting: bool,
}

/// What is to be done after a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Nothing.
    Done,
    /// The socket is full: a task is to go on when there is room.
    Drain(RawFd),
    /// The connection is at its end.
    Failed(String),
}

/// All connections of one client.
#[derive(Debug, Default)]
pub(super) struct Peers(Vec<Option<Peer>>);

impl Peers {
    /// A connection begins.
    pub fn insert(&mut self, id: PeerId, address: Arc<str>) {
        let slot = id.slot as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(Peer {
            epoch: id.epoch,
            address,
            fd: None,
            out: Out::default(),
            draining: false,
            waiting: false,
        });
    }

    /// A connection, unless it has ended.
    pub fn get(&mut self, id: PeerId) -> Option<&mut Peer> {
        let peer = self.0.get_mut(id.slot as usize)?.as_mut();
        peer.filter(|peer| peer.epoch == id.epoch)
    }

    /// Its socket is there. `false`: it is wanted no more.
    pub fn opened(&mut self, id: PeerId, fd: RawFd) -> bool {
        let peer = self.get(id);
        peer.map(|peer| peer.fd = Some(fd)).is_some()
    }

    /// A connection has ended, or is wanted no more: its tasks end by themselves. `None` where
    /// it had ended before.
    pub fn remove(&mut self, id: PeerId) -> Option<Peer> {
        self.get(id)?;
        let peer = self.0[id.slot as usize].take();
        if let Some(fd) = peer.as_ref().and_then(|peer| peer.fd) {
            // SAFETY: a plain system call; the reading task keeps the descriptor open until
            // the connection is removed.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
        peer
    }

    /// Ends all.
    pub fn remove_all(&mut self) {
        for (slot, peer) in self.0.iter().enumerate() {
            if let Some(Peer { fd: Some(fd), .. }) = peer {
                tracing::trace!(slot, "connection closed");
                // SAFETY: as in `remove`.
                unsafe { libc::shutdown(*fd, libc::SHUT_RDWR) };
            }
        }
        self.0.clear();
    }

    /// Whether every byte has left.
    pub fn are_drained(&self) -> bool {
        self.0.iter().flatten().all(|peer| !peer.draining)
    }
}

impl Peer {
    /// Has `take` append frames, and writes them as far as the socket takes them. Where an
    /// earlier write is not done yet, the frames stay where they are until it is.
    pub fn write(&mut self, take: impl FnOnce(&mut Vec<u8>)) -> Written {
        let Some(fd) = self.fd else {
            return Written::Done;
        };
        if self.draining && self.out.len() > OUT_BYTES_MAX {
            self.waiting = true;
            return Written::Done;
        }
        self.waiting = false;
        take(self.out.buffer());
        if self.draining {
            return Written::Done;
        }
        match self.out.send(fd) {
            Ok(true) => Written::Done,
            Ok(false) => {
                self.draining = true;
                Written::Drain(fd)
            }
            Err(error) => Written::Failed(write_failed(&error)),
        }
    }

    /// Everything has left. Whether the core has more frames.
    pub fn drained(&mut self) -> bool {
        self.draining = false;
        std::mem::take(&mut self.waiting)
    }
}

/// What is said of a connection that cannot be written to.
pub(super) fn write_failed(error: &io::Error) -> String {
    format!("write: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    const A: PeerId = PeerId { slot: 0, epoch: 1 };
    const LATER: PeerId = PeerId { slot: 0, epoch: 2 };

    #[test]
    fn the_end_of_an_earlier_connection_is_not_that_of_a_later_one() {
        let mut peers = Peers::default();
        peers.insert(A, "127.0.0.1:1".into());
        assert!(peers.remove(A).is_some());
        peers.insert(LATER, "127.0.0.1:1".into());
        assert!(peers.remove(A).is_none(), "told once");
        assert!(!peers.opened(A, -1));
        assert!(peers.get(LATER).is_some());
    }

    #[test]
    fn frames_stay_with_the_core_while_a_peer_does_not_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut peers = Peers::default();
        peers.insert(A, "127.0.0.1:1".into());
        assert!(peers.opened(A, ours.as_raw_fd()));
        let peer = peers.get(A).unwrap();
        let chunk = vec![7; 2 * OUT_BYTES_MAX];
        let written = peer.write(|out| out.extend_from_slice(&chunk));
        assert_eq!(written, Written::Drain(ours.as_raw_fd()));
        assert_eq!(peer.write(|_| panic!("taken")), Written::Done);
        let mut got = 0;
        let mut into = vec![0; 65_536];
        while !peer.out.send(ours.as_raw_fd()).unwrap() {
            got += theirs.read(&mut into).unwrap();
        }
        assert!(got > 0);
        assert!(peer.drained(), "there was more");
        assert!(!peer.drained());
        drop(theirs);
        assert!(matches!(peer.write(|out| out.push(1)), Written::Failed(_)));
    }
}
