//! Connections, by the core's numbers for them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::out::Out;
use super::poll_set::PollSet;
use crate::client::core::io::PeerId;

/// Bytes that wait for one peer above which no more frames are taken from the core for it.
const OUT_BYTES_MAX: usize = 1024 * 1024;

/// One connection.
#[derive(Debug)]
pub(super) struct Peer {
    epoch: u32,
    /// `host:port`, as the core gave it.
    pub address: Arc<str>,
    /// Once it is connected.
    socket: Option<Arc<OwnedFd>>,
    out: Out,
    /// The start of a frame whose rest is yet to come.
    pub partial: Vec<u8>,
    /// Its socket was full: written again once there is room.
    draining: bool,
    /// The core has more frames for it.
    waiting: bool,
}

/// What is to be done after a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Nothing.
    Done,
    /// The socket is full: to be gone on with when there is room.
    Full,
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
            socket: None,
            out: Out::default(),
            partial: Vec::new(),
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
    pub fn opened(&mut self, id: PeerId, socket: OwnedFd) -> bool {
        let peer = self.get(id);
        peer.map(|peer| peer.socket = Some(socket.into())).is_some()
    }

    /// A connection has ended, or is wanted no more. `None` where it had ended before.
    pub fn remove(&mut self, id: PeerId) -> Option<Peer> {
        self.get(id)?;
        let mut peer = self.0[id.slot as usize].take()?;
        peer.close();
        Some(peer)
    }

    /// Ends all.
    pub fn remove_all(&mut self) {
        self.0.iter_mut().flatten().for_each(Peer::close);
        self.0.clear();
    }

    /// All that there are.
    pub fn ids(&self) -> Vec<PeerId> {
        self.with_ids().map(|(id, _)| id).collect()
    }

    fn with_ids(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        let places = self.0.iter().enumerate();
        places.filter_map(|(slot, peer)| {
            let peer = peer.as_ref()?;
            let (slot, epoch) = (slot as u32, peer.epoch);
            Some((PeerId { slot, epoch }, peer))
        })
    }

    /// Enters what is to be waited for: those that are to be read, and those whose sockets were
    /// full.
    pub fn wait_for(&self, is_read: impl Fn(PeerId) -> bool, set: &mut PollSet) {
        for (id, peer) in self.with_ids() {
            let read = is_read(id);
            if let Some(fd) = peer.fd().filter(|_| read || peer.draining) {
                set.add(Some(id), fd, read, peer.draining);
            }
        }
    }

    /// Whether every byte has left.
    pub fn are_drained(&self) -> bool {
        self.0.iter().flatten().all(|peer| !peer.draining)
    }
}

impl Peer {
    /// Its descriptor, once it is connected; open until it is removed.
    pub fn fd(&self) -> Option<RawFd> {
        self.socket.as_ref().map(|socket| socket.as_raw_fd())
    }

    /// What its answers come by, if all that it was given has left.
    pub fn drained_socket(&self) -> Option<Arc<OwnedFd>> {
        self.socket.clone().filter(|_| !self.draining)
    }

    /// Has `take` append frames, and writes them as far as the socket takes them. Where an
    /// earlier write is not done yet, the frames stay where they are until it is.
    pub fn write(&mut self, take: impl FnOnce(&mut Vec<u8>)) -> Written {
        if self.socket.is_none() {
            return Written::Done;
        }
        if self.draining && self.out.len() > OUT_BYTES_MAX {
            self.waiting = true;
            return Written::Done;
        }
        self.waiting = false;
        take(self.out.buffer());
        if self.draining {
            return Written::Done;
        }
        self.send()
    }

    /// Its socket, which was full, has room. Whether the core has more frames, beside what is to
    /// be done.
    pub fn go_on(&mut self) -> (Written, bool) {
        if !self.draining {
            return (Written::Done, false);
        }
        let written = self.send();
        self.draining = written == Written::Full;
        let more = written == Written::Done && std::mem::take(&mut self.waiting);
        (written, more)
    }

    fn send(&mut self) -> Written {
        let Some(fd) = self.fd() else {
            return Written::Done;
        };
        match self.out.send(fd) {
            Ok(true) => Written::Done,
            Ok(false) => {
                self.draining = true;
                Written::Full
            }
            Err(error) => Written::Failed(write_failed(&error)),
        }
    }

    fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            // Whoever waits for it on another thread hears of it.
            // SAFETY: a plain system call on an open descriptor.
            unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// Reads what a socket has, `flags` being those of recv(2).
///
/// # Errors
/// Those of recv(2).
pub(super) fn receive(fd: RawFd, into: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the kernel writes to `into`, which is borrowed for the whole call.
    let read = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), flags) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// What is said of a connection that cannot be written to.
fn write_failed(error: &io::Error) -> String {
    format!("write: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
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
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(!peers.opened(A, ours.into()));
        assert!(peers.get(LATER).is_some());
    }

    #[test]
    fn frames_stay_with_the_core_while_a_peer_does_not_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut peers = Peers::default();
        peers.insert(A, "127.0.0.1:1".into());
        assert!(peers.opened(A, ours.into()));
        let peer = peers.get(A).unwrap();
        let chunk = vec![7; 2 * OUT_BYTES_MAX];
        let written = peer.write(|out| out.extend_from_slice(&chunk));
        assert_eq!(written, Written::Full);
        assert_eq!(peer.write(|_| panic!("taken")), Written::Done);
        let mut got = 0;
        let mut into = vec![0; 65_536];
        let more = loop {
            match peer.go_on() {
                (Written::Done, more) => break more,
                (Written::Full, more) => assert!(!more),
                (Written::Failed(why), _) => panic!("{why}"),
            }
            got += theirs.read(&mut into).unwrap();
        };
        assert!(got > 0);
        assert!(more, "there was more");
        assert_eq!(peer.go_on(), (Written::Done, false));
        drop(theirs);
        assert!(matches!(peer.write(|out| out.push(1)), Written::Failed(_)));
    }
}
