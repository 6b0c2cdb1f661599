//! A connection from a shard to a server: one request at a time.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future;

use super::{receive, sleep};
use crate::reactor::{Socket, connect};
use crate::wire::command::{Request, Response};
use crate::wire::frame::{self, Split};
use crate::wire::header::{Header, Scratch};

/// The addresses of `host:port`. A name may have to be asked for, from a server
/// that does not answer: that is done on a thread of its own, as the shard's helper
/// thread has files to write.
async fn resolve(address: String) -> Result<Vec<SocketAddr>, RemoteError> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (result_in, result) = flume::bounded(1);
    let started = std::thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || {
            let found = address.to_socket_addrs();
            let _ = result_in.send(found.map(Iterator::collect::<Vec<_>>));
        });
    let refused = |error: &dyn fmt::Display| RemoteError::Connect(error.to_string());
    started.map_err(|error| refused(&error))?;
    match receive(&result).await {
        Ok(found) => found.map_err(|error| refused(&error)),
        Err(error) => Err(refused(&error)),
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// The address cannot be resolved or connected to.
    Connect(String),
    /// The connection broke, or what came is not the protocol.
    Broken(String),
    /// No answer in time.
    Timeout(Duration),
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::Connect(why) => write!(f, "cannot connect: {why}"),
            RemoteError::Broken(why) => write!(f, "connection broke: {why}"),
            RemoteError::Timeout(time) => write!(f, "no answer in {} ms", time.as_millis()),
        }
    }
}

impl std::error::Error for RemoteError {}

/// Most connections without an answer that are kept open: those of some minutes.
const UNANSWERED_MAX: usize = 64;

/// A server that this process is a client of. Connects when it is first called,
/// and again after an error.
pub struct Remote {
    address: String,
    stream: Option<Rc<Socket>>,
    /// Connections on which an answer did not come in time, oldest first.
    unanswered: Vec<Rc<Socket>>,
    received: Vec<u8>,
    opaque: i32,
}

impl Remote {
    /// A server at `host:port`.
    pub fn new(address: &str) -> Remote {
        Remote {
            address: address.to_owned(),
            stream: None,
            unanswered: Vec::new(),
            received: Vec::new(),
            opaque: 0,
        }
    }

    /// Its address, as given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and waits for its answer. The request may arrive twice: a
    /// connection that the server has closed since the last call shows it only now.
    ///
    /// # Errors
    /// [`RemoteError`]. The next call connects again. A connection whose answer did not
    /// come in time stays open until [`Remote::close_unanswered`]: a server that is only
    /// slow may forget at its end what was said on it.
    pub async fn call(
        &mut self,
        mut request: Request,
        timeout: Duration,
    ) -> Result<Response, RemoteError> {
        self.opaque = self.opaque.wrapping_add(1);
        request.fixed.opaque = self.opaque;
        let result = future::or(self.exchange(&request), async {
            sleep(timeout).await;
            Err(RemoteError::Timeout(timeout))
        })
        .await;
        if let Err(error) = &result {
            let stream = self.disconnect();
            if matches!(error, RemoteError::Timeout(_)) {
                self.unanswered.extend(stream);
                let surplus = self.unanswered.len().saturating_sub(UNANSWERED_MAX);
                self.unanswered.drain(..surplus);
            }
        }
        result
    }

    /// Closes the connections that are still open for want of an answer: what was said
    /// on them has been said again.
    pub fn close_unanswered(&mut self) {
        self.unanswered.clear();
    }

    fn disconnect(&mut self) -> Option<Rc<Socket>> {
        self.received.clear();
        self.stream.take()
    }

    async fn connect(&mut self) -> Result<(), RemoteError> {
        let addresses = resolve(self.address.clone()).await?;
        let mut fault = "the name has no address".to_owned();
        for address in addresses {
            match connect(address).await {
                Ok(stream) => {
                    self.stream = Some(stream);
                    return Ok(());
                }
                Err(error) => fault = error.to_string(),
            }
        }
        Err(RemoteError::Connect(fault))
    }

    async fn exchange(&mut self, request: &Request) -> Result<Response, RemoteError> {
        let kept = self.stream.is_some();
        let result = self.exchange_once(request).await;
        if kept && matches!(result, Err(RemoteError::Broken(_))) {
            self.disconnect();
            return self.exchange_once(request).await;
        }
        result
    }

    async fn exchange_once(&mut self, request: &Request) -> Result<Response, RemoteError> {
        if self.stream.is_none() {
            self.connect().await?;
        }
        let Some(stream) = &self.stream else {
            return Err(RemoteError::Connect("not connected".to_owned()));
        };
        let broken = |error: std::io::Error| RemoteError::Broken(error.to_string());
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        stream.send_all(&bytes).await.map_err(broken)?;
        let mut chunk = vec![0; 16 * 1024];
        loop {
            match frame::split(&self.received) {
                Ok(Split::Frame(frame, len)) => {
                    let mut scratch = Scratch::default();
                    let header = Header::decode(&frame, &mut scratch)
                        .map_err(|error| RemoteError::Broken(error.to_string()))?;
                    let ours =
                        header.fixed.is_response() && header.fixed.opaque == request.fixed.opaque;
                    let response = ours.then(|| Response::from_header(&frame, &header));
                    self.received.drain(..len);
                    if let Some(response) = response {
                        return Ok(response);
                    }
                }
                Ok(Split::Incomplete(_)) => {
                    let n = stream.receive(&mut chunk).await.map_err(broken)?;
                    if n == 0 {
                        return Err(RemoteError::Broken("closed by the peer".to_owned()));
                    }
                    self.received.extend_from_slice(&chunk[..n]);
                }
                Err(error) => return Err(RemoteError::Broken(error.to_string())),
            }
        }
    }
}
