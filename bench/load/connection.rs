//! One connection of many that one thread serves.

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use ringmq::wire::frame::{FRAME_BYTES_MAX, Frame, Split, split};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Room for input at first, in bytes: thousands of connections must have theirs.
const INPUT_BYTES_MIN: usize = 16 * 1024;
/// Room for input of a connection that fills it, in bytes.
const INPUT_BYTES_BUSY: usize = 256 * 1024;

/// Why a connection is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It broke, or the peer closed it. Text with the address.
    Lost(String),
    /// What came over it is wrong. Text with the address.
    Fault(String),
}

impl From<Ended> for String {
    fn from(ended: Ended) -> String {
        match ended {
            Ended::Lost(text) | Ended::Fault(text) => text,
        }
    }
}

/// A connection with its buffers.
pub struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes to be written; requests are appended here.
    pub output: Vec<u8>,
    written: usize,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Text with the address.
    pub fn open(peer: SocketAddr, timeout: Duration) -> Result<Connection, String> {
        let open = || -> io::Result<TcpStream> {
            let stream = std::net::TcpStream::connect_timeout(&peer, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(TcpStream::from_std(stream))
        };
        let stream = open().map_err(|error| format!("cannot connect to {peer}: {error}"))?;
        Ok(Connection {
            stream,
            peer,
            input: vec![0; INPUT_BYTES_MIN],
            start: 0,
            end: 0,
            output: Vec::new(),
            written: 0,
        })
    }

    /// Whom it leads to.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Registers it for everything. The kernel reports a socket that can be written again
    /// only after one that could not.
    ///
    /// # Errors
    /// Those of the system.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        self.stream.register(registry, token, both)
    }

    /// Bytes that are still to be written.
    pub fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    /// [`Ended::Lost`].
    pub fn flush(&mut self) -> Result<(), Ended> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Ended::Lost(format!("write to {}: {error}", self.peer)));
                }
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads what is there and hands over each frame, with the time at which it was read.
    ///
    /// # Errors
    /// [`Ended::Lost`]; [`Ended::Fault`] where the peer speaks another protocol, or `each` failed.
    pub fn drain(
        &mut self,
        mut each: impl FnMut(Frame<'_>, u64) -> Result<(), String>,
    ) -> Result<(), Ended> {
        let peer = self.peer;
        loop {
            self.make_room();
            let room = self.input.len() - self.end;
            let read = match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(Ended::Lost(format!("{peer} closed the connection"))),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Ended::Lost(format!("read from {peer}: {error}"))),
            };
            let now = super::clock::now();
            self.end += read;
            loop {
                match split(&self.input[self.start..self.end]) {
                    Ok(Split::Frame(frame, length)) => {
                        each(frame, now)
                            .map_err(|error| Ended::Fault(format!("{peer}: {error}")))?;
                        self.start += length;
                    }
                    Ok(Split::Incomplete(wanted)) => {
                        self.reserve(wanted);
                        break;
                    }
                    Err(error) => {
                        return Err(Ended::Fault(format!(
                            "{peer} does not answer in RocketMQ's protocol: {error}"
                        )));
                    }
                }
            }
            // Less than there was room for: the socket is empty, and reports what comes next.
            if read < room {
                return Ok(());
            }
        }
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            self.grow(self.input.len() * 2);
        }
    }

    /// Room for a frame of `wanted` bytes, of which the beginning is there.
    fn reserve(&mut self, wanted: usize) {
        if self.end == self.input.len() && self.input.len() < INPUT_BYTES_BUSY {
            self.grow(INPUT_BYTES_BUSY);
        }
        if self.start + wanted > self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            self.grow(wanted);
        }
    }

    fn grow(&mut self, wanted: usize) {
        const MAX: usize = FRAME_BYTES_MAX + 64;
        if wanted > self.input.len() {
            self.input.resize(wanted.min(MAX), 0);
        }
    }
}
