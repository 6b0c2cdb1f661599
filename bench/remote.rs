//! A connection for what is asked once: topics, routes, offsets, figures.

use ringmq::wire::codes::response;
use ringmq::wire::command::{Request, Response};
use ringmq::wire::frame::{Split, split};
use ringmq::wire::header::{Header, Scratch};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Requests that wait for their answers at a time.
const WINDOW: usize = 64;

/// A connection with one caller. Answers come in time, or not at all.
pub struct Remote {
    stream: TcpStream,
    address: SocketAddr,
    timeout: Duration,
    input: Vec<u8>,
}

/// The address that a `host:port` names.
///
/// # Errors
/// Text with the name.
pub fn resolve(name: &str) -> Result<SocketAddr, String> {
    let found = name.to_socket_addrs();
    let mut found = found.map_err(|error| format!("{name:?} is no address: {error}"))?;
    found
        .next()
        .ok_or_else(|| format!("{name:?} has no address"))
}

impl Remote {
    /// Connects. `timeout` also holds for each call.
    ///
    /// # Errors
    /// Text with the address.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<Remote, String> {
        let stream = TcpStream::connect_timeout(&address, timeout).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| format!("cannot connect to {address}: {error}"))?;
        Ok(Remote {
            stream,
            address,
            timeout,
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
    pub fn call(&mut self, request: Request) -> Result<Response, String> {
        let mut answers = self.call_all(vec![request])?;
        Ok(answers.remove(0))
    }

    /// The answer to a request, with code 0.
    ///
    /// # Errors
    /// As [`Remote::call`]; another code: with the remark.
    pub fn expect(&mut self, request: Request) -> Result<Response, String> {
        let code = request.fixed.code;
        let answer = self.call(request)?;
        self.succeeded(code, answer)
    }

    /// Answers with code 0 to all requests, in their order.
    ///
    /// # Errors
    /// As [`Remote::expect`], at the first.
    pub fn expect_all(&mut self, requests: Vec<Request>) -> Result<Vec<Response>, String> {
        let codes: Vec<i32> = requests.iter().map(|request| request.fixed.code).collect();
        let answers = self.call_all(requests)?.into_iter().zip(codes);
        answers
            .map(|(answer, code)| self.succeeded(code, answer))
            .collect()
    }

    fn succeeded(&self, code: i32, answer: Response) -> Result<Response, String> {
        if answer.code == response::SUCCESS {
            return Ok(answer);
        }
        let remark = answer.remark.unwrap_or_default();
        Err(refusal(self.address, code, answer.code, &remark))
    }

    fn call_all(&mut self, requests: Vec<Request>) -> Result<Vec<Response>, String> {
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

    /// Sends some requests and waits for all their answers.
    fn exchange(&mut self, mut requests: Vec<Request>) -> Result<Vec<Response>, String> {
        let mut out = Vec::new();
        for (number, request) in requests.iter_mut().enumerate() {
            request.fixed.opaque = number as i32;
            request.encode(&mut out);
        }
        let written = self.stream.write_all(&out);
        written.map_err(|error| format!("write to {}: {error}", self.address))?;
        let deadline = Instant::now() + self.timeout;
        let mut answers = vec![None; requests.len()];
        let mut missing = requests.len();
        while missing > 0 {
            let (opaque, answer) = self.receive(deadline)?;
            let place = usize::try_from(opaque).ok();
            let place = place.and_then(|at| answers.get_mut(at));
            if let Some(place @ None) = place {
                *place = Some(answer);
                missing -= 1;
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn receive(&mut self, deadline: Instant) -> Result<(i32, Response), String> {
        let address = self.address;
        loop {
            let split = split(&self.input);
            let split = split.map_err(|error| {
                format!("{address} does not answer in RocketMQ's protocol: {error}")
            })?;
            if let Split::Frame(frame, length) = split {
                let mut scratch = Scratch::default();
                let header = Header::decode(&frame, &mut scratch);
                let header = header.map_err(|error| format!("answer of {address}: {error}"))?;
                let is_answer = header.fixed.is_response();
                let found = (header.fixed.opaque, Response::from_header(&frame, &header));
                self.input.drain(..length);
                if is_answer {
                    return Ok(found);
                }
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let silent = || format!("{address} did not answer within {:?}", self.timeout);
            if left.is_zero() {
                return Err(silent());
            }
            let mut chunk = [0; 16 * 1024];
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut chunk));
            match read {
                Ok(0) => return Err(format!("{address} closed the connection")),
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(match error.kind() {
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => silent(),
                        _ => format!("read from {address}: {error}"),
                    });
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
