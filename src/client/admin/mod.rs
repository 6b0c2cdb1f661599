//! What an operator asks of nameservers and brokers, RingMQ's and Apache RocketMQ's alike.
//!
//! [`Admin`] keeps a connection to everyone it has asked and blocks its caller. Every answer is
//! checked before it is used; an answer that cannot be true is an [`AdminFault::Unsound`].
//!
#![doc = example!("list_topics")]

mod body;
mod brokers;
mod error;
mod groups;
mod messages;
mod nameservers;
mod offsets;
mod properties_text;
mod send;
mod topics;

#[cfg(test)]
mod tests;

pub use body::{
    ConnectionInfo, ConsumeStatsList, ConsumerConnection, ConsumerStatus, ProducerConnection,
    ProducerInfo, ProducerTable, QueueEntry, QueueView, StatsItem, StatsSpan, version_name,
};
pub use brokers::MASTER;
pub use brokers::{Broker, Select};
pub use error::{AdminError, AdminFault};
pub use messages::{
    BODY_BYTES_MAX, PullAnswer, StoredMessage, TOOLS_GROUP, UniqueKey, parse_messages,
};
pub use nameservers::ORDER_TOPIC_CONFIG;
pub use offsets::QueueReset;
pub use properties_text::{from_properties_text, to_properties_text};
pub use send::{Outgoing, Receipt, SENDERS_GROUP};

use crate::client::remote::{Remote, RemoteError, RemoteFault, resolve};
use crate::wire::body::json;
use crate::wire::codes::response;
use crate::wire::command::{Request, Response};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a connection may lie unused before it is made anew: brokers close one after 120 s.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Most queues that a topic may have on one broker. A route that claims more is not believed.
pub const QUEUES_MAX: i32 = 65_536;

/// An operator's connections. Not for more than one thread at a time.
#[derive(Debug)]
pub struct Admin {
    nameservers: Vec<String>,
    /// Index of the nameserver that answered last.
    current: usize,
    timeout: Duration,
    connections: HashMap<SocketAddr, (Remote, Instant)>,
}

impl Admin {
    /// An operator who asks these nameservers, `host:port` with `;` or `,` between them. An empty
    /// text is none: brokers can then be asked by address only. `timeout` is of each request.
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// [`AdminFault::NotFound`] for something that is not `host:port`.
    pub fn new(nameservers: &str, timeout: Duration) -> Result<Admin, AdminError> {
        let names = nameservers.split([';', ',']).map(str::trim);
        let nameservers: Vec<String> = names
            .filter(|name| !name.is_empty())
            .map(|name| name.strip_prefix("http://").unwrap_or(name).to_owned())
            .collect();
        if let Some(bad) = nameservers.iter().find(|name| !is_address(name)) {
            return Err(AdminError::not_found("nameserver at", bad.as_str()));
        }
        Ok(Admin {
            nameservers,
            current: 0,
            timeout,
            connections: HashMap::new(),
        })
    }

    /// Changes how long each request may take from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        // Those that are there have the time that they were made with.
        self.connections.clear();
    }

    /// The nameservers.
    pub fn nameservers(&self) -> &[String] {
        &self.nameservers
    }

    /// The answer with code 0 of the one at `address`, `host:port`.
    ///
    /// # Errors
    /// [`AdminFault::Address`], [`AdminFault::Remote`].
    pub fn ask(&mut self, address: &str, request: Request) -> Result<Response, AdminError> {
        let code = request.fixed.code;
        let mut answers = self.ask_all(address, vec![request])?;
        succeeded(resolve(address)?, code, answers.remove(0))
    }

    /// Answers to all requests in their order, whatever their codes; many are under way at a time.
    ///
    /// # Errors
    /// As [`Admin::ask`], without refusals.
    pub fn ask_all(
        &mut self,
        address: &str,
        requests: Vec<Request>,
    ) -> Result<Vec<Response>, AdminError> {
        let address = resolve(address)?;
        let mut remote = match self.connections.remove(&address) {
            Some((remote, used)) if used.elapsed() < IDLE_MAX => remote,
            _ => Remote::connect(address, self.timeout)?,
        };
        let answers = remote.call_all(requests)?;
        self.connections.insert(address, (remote, Instant::now()));
        Ok(answers)
    }

    /// The answer of a nameserver: the one that answered last is asked first, then the others.
    ///
    /// # Errors
    /// [`AdminFault::NoNameserver`], [`AdminFault::Nameservers`], or a refusal.
    pub fn ask_nameserver(&mut self, request: Request) -> Result<Response, AdminError> {
        let count = self.nameservers.len();
        if count == 0 {
            return Err(AdminFault::NoNameserver.into());
        }
        let mut faults = Vec::new();
        for step in 0..count {
            let at = (self.current + step) % count;
            let address = self.nameservers[at].clone();
            match self.ask(&address, request.clone()) {
                Ok(answer) => {
                    self.current = at;
                    return Ok(answer);
                }
                Err(error) if error.code().is_some() => {
                    self.current = at;
                    return Err(error);
                }
                Err(error) => faults.push(error.to_string()),
            }
        }
        Err(AdminFault::Nameservers(faults).into())
    }

    /// Asks every nameserver, and answers with what each said.
    ///
    /// # Errors
    /// [`AdminFault::NoNameserver`], or of the first that fails.
    pub fn ask_nameservers(
        &mut self,
        request: &Request,
    ) -> Result<Vec<(String, Response)>, AdminError> {
        if self.nameservers.is_empty() {
            return Err(AdminFault::NoNameserver.into());
        }
        let mut answers = Vec::new();
        for address in self.nameservers.clone() {
            let answer = self.ask(&address, request.clone())?;
            answers.push((address, answer));
        }
        Ok(answers)
    }

    fn body_of<T: DeserializeOwned>(
        &mut self,
        address: &str,
        request: Request,
    ) -> Result<T, AdminError> {
        let code = request.fixed.code;
        let answer = self.ask(address, request)?;
        read_body(address, code, &answer)
    }

    fn body_of_nameserver<T: DeserializeOwned>(
        &mut self,
        request: Request,
    ) -> Result<T, AdminError> {
        let code = request.fixed.code;
        let answer = self.ask_nameserver(request)?;
        let address = &self.nameservers[self.current];
        read_body(address, code, &answer)
    }
}

/// Whether a text has the form `host:port` with a port that can be connected to.
pub fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

fn succeeded(address: SocketAddr, request: i32, answer: Response) -> Result<Response, AdminError> {
    if answer.code == response::SUCCESS {
        return Ok(answer);
    }
    Err(AdminError::from(RemoteError {
        address,
        fault: RemoteFault::Refused {
            request,
            code: answer.code,
            remark: answer.remark.unwrap_or_default(),
        },
    }))
}

/// A body as a value; an empty one is `{}`, as Java writes `null` for it.
fn read_body<T: DeserializeOwned>(
    address: &str,
    request: i32,
    answer: &Response,
) -> Result<T, AdminError> {
    let body: &[u8] = match &answer.body[..] {
        [] => b"{}",
        body => body,
    };
    json::parse(body).map_err(|why| {
        AdminFault::Body {
            address: address.to_owned(),
            request,
            why,
        }
        .into()
    })
}

/// The number in an ext field of an answer.
fn number_of(address: &str, answer: &Response, field: &str) -> Result<i64, AdminError> {
    let value = answer.get(field).unwrap_or_default();
    value
        .parse()
        .map_err(|_| AdminError::unsound(address, format!("{field}={value:?}, which is no number")))
}
