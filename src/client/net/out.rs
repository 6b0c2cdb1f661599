//! What a connection is yet to be sent.

use std::io;
use std::os::fd::RawFd;

/// A buffer that grew beyond this for one burst is not kept, in bytes.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes in order: frames are encoded straight into it, one behind the other, and all that
/// gathered in a turn leaves with one system call.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: Vec<u8>,
    /// Of `bytes`, those that have left.
    sent: usize,
}

impl Out {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer to append frames to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What waits, in order.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// So many of the bytes that waited have left.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.bytes.len() {
            self.sent = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        } else if self.sent > KEPT_BYTES_MAX {
            // A peer that always leaves a rest: what has left must not stay for ever.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends what the socket takes without waiting. `Ok(true)`: everything.
    ///
    /// # Errors
    /// Those of the socket: the connection is at its end.
    pub fn send(&mut self, fd: RawFd) -> io::Result<bool> {
        while !self.is_empty() {
            let waiting = self.waiting();
            // SAFETY: the kernel reads `waiting`, which is borrowed for the whole call.
            let sent = unsafe {
                libc::send(
                    fd,
                    waiting.as_ptr().cast(),
                    waiting.len(),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            let Ok(sent) = usize::try_from(sent) else {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => return Ok(false),
                    _ => return Err(error),
                }
            };
            self.advance(sent);
        }
        Ok(true)
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
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn bytes_leave_in_order_however_little_the_socket_takes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60_000), 0..60),
        ) {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let (mut out, mut expected, mut got) = (Out::default(), Vec::new(), Vec::new());
            let mut chunk = vec![0; 30_000];
            for bytes in &parts {
                expected.extend_from_slice(bytes);
                out.buffer().extend_from_slice(bytes);
                out.send(ours.as_raw_fd()).unwrap();
            }
            while !out.send(ours.as_raw_fd()).unwrap() || got.len() < expected.len() {
                match theirs.read(&mut chunk) {
                    Ok(n) => got.extend_from_slice(&chunk[..n]),
                    Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            prop_assert!(out.is_empty());
            prop_assert!(out.buffer().capacity() <= KEPT_BYTES_MAX);
            prop_assert_eq!(got, expected);
        }
    }
}
