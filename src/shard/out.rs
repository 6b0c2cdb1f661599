//! What a connection is yet to be sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use bytes::Bytes;

/// Pieces that one system call takes.
const PIECES_PER_WRITE: usize = 64;

/// Bodies up to this size are copied: a small one is cheaper to copy than to name.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// Bodies of more pieces are copied where these are small: a system call names so many.
const NAMED_PIECES_MAX: usize = PIECES_PER_WRITE - 2;

/// Answers in order: small ones one behind the other in a buffer, large bodies as
/// references to where they lie.
#[derive(Debug, Default)]
pub struct OutQueue {
    pieces: VecDeque<Bytes>,
    buffer: Vec<u8>,
    bytes: usize,
}

impl OutQueue {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.bytes + self.buffer.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer to append small answers to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends a piece without copying it.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.seal();
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    /// Appends the pieces of a body of `len` bytes, copied where it is small, so that small
    /// answers share one system call's buffer.
    pub fn push_body(&mut self, pieces: Vec<Bytes>, len: usize) {
        let name_all = len > COPY_BYTES_MAX && pieces.len() <= NAMED_PIECES_MAX;
        for piece in pieces {
            if name_all || piece.len() > COPY_BYTES_MAX {
                self.push(piece);
            } else {
                self.buffer.extend_from_slice(&piece);
            }
        }
    }

    fn seal(&mut self) {
        if !self.buffer.is_empty() {
            let sealed = Bytes::from(std::mem::take(&mut self.buffer));
            self.bytes += sealed.len();
            self.pieces.push_back(sealed);
        }
    }

    /// Sends what the socket takes without waiting. `Ok(true)`: everything.
    ///
    /// # Errors
    /// Those of the socket: the connection is at its end.
    pub(super) fn send(&mut self, fd: RawFd) -> io::Result<bool> {
        while !self.is_empty() {
            let sent = match self.send_once(fd) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            self.consume(sent);
        }
        Ok(true)
    }

    fn send_once(&self, fd: RawFd) -> io::Result<usize> {
        let mut iov = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; PIECES_PER_WRITE];
        let mut count = 0;
        let buffer = (!self.buffer.is_empty()).then_some(&self.buffer[..]);
        let pieces = self.pieces.iter().map(|piece| &piece[..]);
        for (slot, piece) in iov.iter_mut().zip(pieces.chain(buffer)) {
            slot.iov_base = piece.as_ptr().cast_mut().cast();
            slot.iov_len = piece.len();
            count += 1;
        }
        // SAFETY: zero is a valid value of every field of `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = iov.as_mut_ptr();
        message.msg_iovlen = count;
        // SAFETY: `message` names `count` iovecs, each over bytes that `self` keeps
        // borrowed for the whole call; the kernel only reads them.
        let sent = unsafe { libc::sendmsg(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn consume(&mut self, mut sent: usize) {
        while let Some(front) = self.pieces.front_mut() {
            if sent < front.len() {
                let _ = front.split_to(sent);
                self.bytes -= sent;
                return;
            }
            sent -= front.len();
            self.bytes -= front.len();
            self.pieces.pop_front();
        }
        if sent == self.buffer.len() {
            self.buffer.clear();
            // A buffer that one large answer grew is not kept.
            if self.buffer.capacity() > 256 * 1024 {
                self.buffer = Vec::new();
            }
        } else {
            self.buffer.drain(..sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn bytes_leave_in_order_however_little_the_socket_takes(
            parts in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(any::<u8>(), 0..40_000)), 0..90),
        ) {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let (mut out, mut expected, mut got) = (OutQueue::default(), Vec::new(), Vec::new());
            let mut chunk = vec![0; 30_000];
            for (by_reference, bytes) in &parts {
                expected.extend_from_slice(bytes);
                if *by_reference {
                    out.push(Bytes::copy_from_slice(bytes));
                } else {
                    out.buffer().extend_from_slice(bytes);
                }
                out.send(ours.as_raw_fd()).unwrap();
            }
            while !out.send(ours.as_raw_fd()).unwrap() || got.len() < expected.len() {
                match theirs.read(&mut chunk) {
                    Ok(n) => got.extend_from_slice(&chunk[..n]),
                    Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            prop_assert!(out.is_empty());
            prop_assert_eq!(got, expected);
        }
    }
}
