//! A connection for what is asked once: topics, routes, offsets, figures.
//!
//! It blocks its caller and needs neither a thread nor an event loop of its own, which is right for
//! operators' commands and wrong for traffic.

use crate::wire::codes::response;
use crate::wire::command::{Request, Response};
use crate::wire::frame::{FrameError, Split, split};
use crate::wire::header::{Header, HeaderError, Scratch};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Requests that wait for their answers at a time.
const WINDOW: usize = 64;

/// A connection with one caller. Answers come in time, or not at all.
///
/// After an error other than [`RemoteFault::Refused`] the connection is of no more use.
#[derive(Debug)]
pub struct Remote {
    stream: TcpStream,
    address: SocketAddr,
    timeout: Duration,
    opaque: i32,
    input: Vec<u8>,
}

/// Why something was not answered as it should be, and by whom.
#[derive(Debug)]
pub struct RemoteError {
    /// Who was asked.
    pub address: SocketAddr,
    /// What went wrong.
    pub fault: RemoteFault,
}

/// What went wrong with a connection or a request.
#[derive(Debug)]
pub enum RemoteFault {
    /// There is no connection.
    Connect(io::Error),
    /// A request could not be written.
    Write(io::Error),
    /// An answer could not be read.
    Read(io::Error),
    /// No answer came within this time.
    Silent(Duration),
    /// The other side closed the connection before it answered.
    Closed,
    /// What came is no frame of remoting.
    Frame(FrameError),
    /// What came is a frame without a readable header.
    Header(HeaderError),
    /// The answer has another code than 0.
    Refused {
        /// Code of the request.
        request: i32,
        /// Code of the answer.
        code: i32,
        /// What the answer says.
        remark: String,
    },
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match &self.fault {
            RemoteFault::Connect(error) => write!(f, "cannot connect to {address}: {error}"),
            RemoteFault::Write(error) => write!(f, "write to {address}: {error}"),
            RemoteFault::Read(error) => write!(f, "read from {address}: {error}"),
            RemoteFault::Silent(limit) => write!(f, "{address} did not answer within {limit:?}"),
            RemoteFault::Closed => write!(f, "{address} closed the connection"),
            RemoteFault::Frame(error) => {
                write!(
                    f,
                    "{address} does not answer in RocketMQ's protocol: {error}"
                )
            }
            RemoteFault::Header(error) => write!(f, "answer of {address}: {error}"),
            RemoteFault::Refused {
                request,
                code,
                remark,
            } => f.write_str(&refusal(address, *request, *code, remark)),
        }
    }
}

impl std::error::Error for RemoteError {}

impl From<RemoteError> for String {
    fn from(error: RemoteError) -> String {
        error.to_string()
    }
}

/// A name that leads to no address.
#[derive(Debug)]
pub struct ResolveError {
    /// The name as it was given.
    pub name: String,
    /// What the system says of it; `None`: it is known and has no address.
    pub why: Option<io::Error>,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Some(error) => write!(f, "{:?} is no address: {error}", self.name),
            None => write!(f, "{:?} has no address", self.name),
        }
    }
}

impl std::error::Error for ResolveError {}

impl From<ResolveError> for String {
    fn from(error: ResolveError) -> String {
        error.to_string()
    }
}

/// The address that a `host:port` names.
///
/// # Errors
/// [`ResolveError`] with the name.
pub fn resolve(name: &str) -> Result<SocketAddr, ResolveError> {
    let failed = |why| ResolveError {
        name: name.to_owned(),
        why,
    };
    let mut found = name
        .to_socket_addrs()
        .map_err(|error| failed(Some(error)))?;
    found.next().ok_or_else(|| failed(None))
}

impl Remote {
    /// Connects. `timeout` also holds for each call.
    ///
    /// # Errors
    /// [`RemoteFault::Connect`].
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<Remote, RemoteError> {
        let stream = TcpStream::connect_timeout(&address, timeout).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| RemoteError {
            address,
            fault: RemoteFault::Connect(error),
        })?;
        Ok(Remote {
            stream,
            address,
            timeout,
            opaque: 0,
            input: Vec::new(),
        })
    }

    /// Whom it leads to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The answer to a request, whatever its code.
    ///
    /// # Errors
    /// None came in time, or what came is none.
    pub fn call(&mut self, request: Request) -> Result<Response, RemoteError> {
        let mut answers = self.call_all(vec![request])?;
        Ok(answers.remove(0))
    }

    /// The answer to a request, with code 0.
    ///
    /// # Errors
    /// As [`Remote::call`]; another code: with the remark.
    pub fn expect(&mut self, request: Request) -> Result<Response, RemoteError> {
        let code = request.fixed.code;
        let answer = self.call(request)?;
        self.succeeded(code, answer)
    }

    /// Answers with code 0 to all requests, in their order.
    ///
    /// # Errors
    /// As [`Remote::expect`], at the first.
    pub fn expect_all(&mut self, requests: Vec<Request>) -> Result<Vec<Response>, RemoteError> {
        let codes: Vec<i32> = requests.iter().map(|request| request.fixed.code).collect();
        let answers = self.call_all(requests)?.into_iter().zip(codes);
        answers
            .map(|(answer, code)| self.succeeded(code, answer))
            .collect()
    }

    /// Answers to all requests, in their order, whatever their codes. Up to 64 requests are under
    /// way at a time.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub fn call_all(&mut self, requests: Vec<Request>) -> Result<Vec<Response>, RemoteError> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        loop {
            let window: Vec<Request> = requests.by_ref().take(WINDOW).collect();
            if window.is_empty() {
                return Ok(answers);
            }
            answers.extend(self.exchange(window)?);
        }
    }

    fn fault(&self, fault: RemoteFault) -> RemoteError {
        RemoteError {
            address: self.address,
            fault,
        }
    }

    fn succeeded(&self, request: i32, answer: Response) -> Result<Response, RemoteError> {
        if answer.code == response::SUCCESS {
            return Ok(answer);
        }
        Err(self.fault(RemoteFault::Refused {
            request,
            code: answer.code,
            remark: answer.remark.unwrap_or_default(),
        }))
    }

    /// Sends some requests and waits for all their answers.
    fn exchange(&mut self, mut requests: Vec<Request>) -> Result<Vec<Response>, RemoteError> {
        // Numbers are never used again, so that no late answer is taken for that of another request.
        let first = self.opaque;
        let mut out = Vec::new();
        for request in &mut requests {
            request.fixed.opaque = self.opaque;
            self.opaque = self.opaque.wrapping_add(1);
            request.encode(&mut out);
        }
        let written = self.stream.write_all(&out);
        written.map_err(|error| self.fault(RemoteFault::Write(error)))?;
        let deadline = Instant::now() + self.timeout;
        let mut answers = vec![None; requests.len()];
        let mut missing = requests.len();
        while missing > 0 {
            let (opaque, answer) = self.receive(deadline)?;
            let place = usize::try_from(opaque.wrapping_sub(first)).ok();
            let place = place.and_then(|at| answers.get_mut(at));
            if let Some(place @ None) = place {
                *place = Some(answer);
                missing -= 1;
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn receive(&mut self, deadline: Instant) -> Result<(i32, Response), RemoteError> {
        let address = self.address;
        let failed = |fault| RemoteError { address, fault };
        loop {
            let split = split(&self.input).map_err(|error| failed(RemoteFault::Frame(error)))?;
            if let Split::Frame(frame, length) = split {
                let mut scratch = Scratch::default();
                let header = Header::decode(&frame, &mut scratch);
                let header = header.map_err(|error| failed(RemoteFault::Header(error)))?;
                let is_answer = header.fixed.is_response();
                let found = (header.fixed.opaque, Response::from_header(&frame, &header));
                self.input.drain(..length);
                if is_answer {
                    return Ok(found);
                }
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(RemoteFault::Silent(self.timeout)));
            }
            let mut chunk = [0; 64 * 1024];
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut chunk));
            match read {
                Ok(0) => return Err(failed(RemoteFault::Closed)),
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(failed(match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                            RemoteFault::Silent(self.timeout)
                        }
                        _ => RemoteFault::Read(error),
                    }));
                }
            }
        }
    }
}

/// What a refused request is called.
pub fn refusal(address: SocketAddr, request: i32, code: i32, remark: &str) -> String {
    let remark = remark.lines().next().unwrap_or_default();
    format!("{address} answered request {request} with code {code}: {remark}")
}
