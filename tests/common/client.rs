//! A plain blocking connection that speaks remoting.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ringmq::wire::command::Request;
use ringmq::wire::frame::{Serialize, Split, split};
use ringmq::wire::header::{Header, Scratch};

use super::{Record, records};

/// Longest wait for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A frame that came back.
#[derive(Clone, Debug)]
pub struct Reply {
    pub serialize: Serialize,
    pub code: i32,
    pub version: i32,
    pub language: u8,
    pub opaque: i32,
    pub flag: i32,
    pub remark: String,
    pub ext: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// When it was read.
    pub at: Instant,
}

impl Reply {
    /// Goes on with an answer of this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Reply {
        let Reply {
            code: got,
            remark,
            ext,
            ..
        } = &self;
        assert_eq!(*got, code, "answer {got} with {remark:?} and {ext:?}");
        self
    }

    #[track_caller]
    pub fn ext(&self, key: &str) -> &str {
        let value = self.ext.get(key);
        value.unwrap_or_else(|| panic!("no {key} in {:?}, code {}", self.ext, self.code))
    }

    #[track_caller]
    pub fn int(&self, key: &str) -> i64 {
        let value = self.ext(key);
        value
            .parse()
            .unwrap_or_else(|_| panic!("{key} is {value:?}"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The body as messages.
    pub fn records(&self) -> Vec<Record> {
        records(&self.body)
    }
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    /// How headers are written.
    pub serialize: Serialize,
    opaque: i32,
    buffer: Vec<u8>,
    replies: VecDeque<Reply>,
    requests: VecDeque<Reply>,
}

impl Client {
    pub fn connect(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Client {
            stream,
            serialize: Serialize::Json,
            opaque: 0,
            buffer: Vec::new(),
            replies: VecDeque::new(),
            requests: VecDeque::new(),
        }
    }

    /// The same connection with binary headers.
    pub fn binary(mut self) -> Client {
        self.serialize = Serialize::Binary;
        self
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The frame of a request, and the number of its answer.
    pub fn frame(&mut self, mut request: Request) -> (Vec<u8>, i32) {
        self.opaque += 1;
        request.fixed.opaque = self.opaque;
        request.serialize = self.serialize;
        let mut frame = Vec::new();
        request.encode(&mut frame);
        (frame, self.opaque)
    }

    /// Sends a request; the number of its answer.
    pub fn send(&mut self, request: impl Into<Request>) -> i32 {
        let (frame, opaque) = self.frame(request.into());
        self.raw(&frame).expect("write");
        opaque
    }

    /// Sends a request that is not answered.
    pub fn send_one_way(&mut self, request: impl Into<Request>) {
        let mut request = request.into();
        request.fixed.flag |= 2;
        self.send(request);
    }

    /// The answer with this number.
    #[track_caller]
    pub fn receive(&mut self, opaque: i32) -> Reply {
        self.try_receive(opaque, PATIENCE)
            .unwrap_or_else(|| panic!("no answer {opaque} in {PATIENCE:?}"))
    }

    /// The answer with this number, if it comes in time. Panics where the connection ends.
    pub fn try_receive(&mut self, opaque: i32, patience: Duration) -> Option<Reply> {
        let until = Instant::now() + patience;
        loop {
            if let Some(at) = self.replies.iter().position(|reply| reply.opaque == opaque) {
                return self.replies.remove(at);
            }
            if !self.fill(until).expect("the connection stays") {
                return None;
            }
        }
    }

    /// The next request that the server sends by itself, if one comes in time.
    pub fn next_request(&mut self, patience: Duration) -> Option<Reply> {
        let until = Instant::now() + patience;
        while self.requests.is_empty() {
            if !self.fill(until).expect("the connection stays") {
                return None;
            }
        }
        self.requests.pop_front()
    }

    /// Request and answer.
    #[track_caller]
    pub fn call(&mut self, request: impl Into<Request>) -> Reply {
        let opaque = self.send(request);
        self.receive(opaque)
    }

    /// Request and answer, unless the connection ends first.
    pub fn try_call(&mut self, request: impl Into<Request>) -> io::Result<Reply> {
        let (frame, opaque) = self.frame(request.into());
        self.raw(&frame)?;
        self.answer(opaque)
    }

    /// The answer with this number, unless the connection ends first.
    pub fn answer(&mut self, opaque: i32) -> io::Result<Reply> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.replies.iter().position(|reply| reply.opaque == opaque) {
                return Ok(self.replies.remove(at).expect("found"));
            }
            if !self.fill(until)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Whether the server ends the connection in time, without an answer to anything.
    pub fn is_closed_within(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            match self.fill(until) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return self.replies.is_empty(),
            }
        }
    }

    /// No more bytes from this end.
    pub fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Bytes that came and are not a whole frame.
    pub fn unread(&self) -> usize {
        self.buffer.len()
    }

    /// Reads what is there; `false` where nothing comes in time, an error at the end.
    fn fill(&mut self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        self.stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut chunk = [0; 64 * 1024];
        let read = match self.stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                return Ok(Instant::now() < until);
            }
            Err(error) => return Err(error),
        };
        self.buffer.extend_from_slice(&chunk[..read]);
        let mut used = 0;
        let mut scratch = Scratch::default();
        while let Split::Frame(frame, len) = split(&self.buffer[used..]).expect("a frame") {
            let header = Header::decode(&frame, &mut scratch).expect("a header");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
            let reply = Reply {
                serialize: frame.serialize,
                code: header.fixed.code,
                version: header.fixed.version,
                language: header.fixed.language,
                opaque: header.fixed.opaque,
                flag: header.fixed.flag,
                remark: header.remark().map(text).unwrap_or_default(),
                ext: header.fields().map(|(k, v)| (text(k), text(v))).collect(),
                body: frame.body.to_vec(),
                at: Instant::now(),
            };
            if header.fixed.is_response() {
                self.replies.push_back(reply);
            } else {
                self.requests.push_back(reply);
            }
            used += len;
        }
        self.buffer.drain(..used);
        Ok(true)
    }
}
