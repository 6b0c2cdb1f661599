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
    /// The connection ended: text with the address.
    pub fn flush(&mut self) -> Result<(), String> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("write to {}: {error}", self.peer)),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads what is there and hands over each frame, with the time at which it was read.
    ///
    /// # Errors
    /// The connection ended, the peer speaks another protocol, or `each` failed.
    pub fn drain(
        &mut self,
        mut each: impl FnMut(Frame<'_>, u64) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            self.make_room();
            let room = self.input.len() - self.end;
            let read = match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(format!("{} closed the connection", self.peer)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("read from {}: {error}", self.peer)),
            };
            let now = super::clock::now();
            self.end += read;
            loop {
                match split(&self.input[self.start..self.end]) {
                    Ok(Split::Frame(frame, length)) => {
                        each(frame, now)?;
                        self.start += length;
                    }
                    Ok(Split::Incomplete(wanted)) => {
                        self.reserve(wanted);
                        break;
                    }
                    Err(error) => {
                        return Err(format!(
                            "{} does not answer in RocketMQ's protocol: {error}",
                            self.peer
                        ));
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
