//! The core of a client: state and decisions, without I/O, clock, thread or channel.
//!
//! | file | what it decides |
//! | --- | --- |
//! | [`io`] | everything that goes in and comes out |
//! | `requests` | which answer is for whom, and when it is too late |
//! | `peers` | connections by address, and what waits to be written |
//! | `ask` | questions to nameservers, raw requests |
//! | `nameservers` | which nameserver is asked |
//! | `routes`, `route_check`, `refresh` | where topics are |
//! | `heartbeats` | what brokers hear of this client |
//! | [`producer`] | sends |
//! | [`consumer`], `consumers` | consumption |
//! | `life` | stopping |
//!
//! One value of [`Core`] lives on one thread, and everything in it is owned by it.

use std::sync::Arc;

use bytes::Bytes;

use super::error::{Error, ErrorKind, Result};
use super::settings::{self, ClientSettings};
use crate::wire::codes::request;
use crate::wire::command::{Request, Response};
use crate::wire::frame::{self, Frame, Split};
use crate::wire::header::{FLAG_ONE_WAY, Header, Scratch};
use crate::wire::send_request::LANGUAGE_RUST;

mod ask;
pub mod consumer;
mod consumers;
mod heartbeats;
mod identity;
pub mod io;
mod life;
mod nameservers;
mod peers;
pub mod producer;
mod pushed;
mod random;
mod refresh;
mod requests;
mod route_check;
pub mod routes;

#[cfg(test)]
pub(in crate::client) mod tests;

use ask::Asks;
use consumers::Consumers;
use heartbeats::Heartbeats;
use identity::client_id;
use io::{Answer, Command, Input, Now, Output, PeerId, Ticket};
use life::Life;
use nameservers::NameServers;
use peers::{Ended, Peers};
use producer::{Producers, SendId};
use random::Random;
use refresh::Refresh;
use requests::{Pending, Requests};
use routes::Routes;

/// How often connections are looked through for idle ones, ms.
const HOUSEKEEPING_MS: u64 = 10_000;

/// What a request is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// A try of a send.
    Send(SendId),
    /// A question of [`Asks`].
    NameServer(u64),
    Heartbeat,
    /// The detector of a producer looks whether a broker can be reached.
    Probe {
        producer: io::ProducerId,
        broker: u32,
    },
    /// A question of a consumer.
    Consumer {
        consumer: io::ConsumerId,
        call: u64,
    },
    /// A raw request.
    Invoke(Ticket),
    /// The answer is of no interest.
    Forget,
}

/// Who waits for a frame without an answer to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OneWay {
    Send(SendId),
    Invoke(Ticket),
}

/// Things that should not happen, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers to no request, or too late.
    pub unknown_answers: u64,
    /// Connections closed because of what came by them.
    pub bad_frames: u64,
    /// Requests of brokers that are not served.
    pub unknown_requests: u64,
    /// Requests of brokers to check transactions, which are not served.
    pub transaction_checks: u64,
}

/// One client instance.
pub struct Core {
    settings: ClientSettings,
    client_id: Arc<str>,
    peers: Peers,
    requests: Requests<Purpose>,
    nameservers: NameServers,
    asks: Asks,
    routes: Routes,
    refresh: Refresh,
    heartbeats: Heartbeats,
    producers: Producers,
    consumers: Consumers,
    life: Life,
    scratch: Scratch,
    ended: Vec<Pending<Purpose>>,
    random: Random,
    housekeeping_at: u64,
    counts: Counts,
}

impl Core {
    /// A client that knows nothing yet. Settings that depend on the environment must be
    /// resolved: the nameservers are a list, or come by [`Command::NameServers`].
    ///
    /// # Errors
    /// Settings out of their bounds.
    pub fn new(settings: ClientSettings, now: Now) -> Result<Core> {
        let seed = now.wall as u64 ^ (u64::from(std::process::id()) << 32);
        Core::with_seed(settings, now, seed)
    }

    /// As [`Core::new`], with the seed of everything that is left to chance.
    ///
    /// # Errors
    /// Settings out of their bounds.
    pub fn with_seed(settings: ClientSettings, now: Now, seed: u64) -> Result<Core> {
        settings.check()?;
        let mut random = Random(seed);
        let addresses = match &settings.name_servers {
            settings::NameServers::List(addresses) => &addresses[..],
            _ => &[],
        };
        let nameservers = NameServers::new(addresses, random.next());
        Ok(Core {
            client_id: client_id(&settings, now).into(),
            peers: Peers::default(),
            requests: Requests::new(now.at),
            nameservers,
            asks: Asks::default(),
            routes: Routes::new(),
            refresh: Refresh::new(now.at + settings.poll_name_server_interval_ms),
            heartbeats: Heartbeats::new(now.at + settings.heartbeat_broker_interval_ms),
            producers: Producers::default(),
            consumers: Consumers::default(),
            life: Life::Running,
            scratch: Scratch::default(),
            ended: Vec::new(),
            random,
            housekeeping_at: now.at + HOUSEKEEPING_MS,
            counts: Counts::default(),
            settings,
        })
    }

    /// Name of this client in all its groups, `ip@instance`.
    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Something has happened.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Command(command) => self.command(now, command, out),
            Input::Connected { peer } => self.peers.connected(peer, now.at, out),
            Input::Disconnected { peer, why } => self.end_peer(now, peer, &why, out),
            Input::Tick => {}
        }
        self.pass(now, out);
    }

    /// Bytes have come from a peer; how many of them were used. The rest is given again with
    /// what follows: it is the start of a frame.
    pub fn received(
        &mut self,
        now: Now,
        peer: PeerId,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> usize {
        if !self.peers.heard(peer, now.at) {
            return bytes.len();
        }
        let mut used = 0;
        let mut scratch = std::mem::take(&mut self.scratch);
        loop {
            let fault = match frame::split(&bytes[used..]) {
                Ok(Split::Incomplete(_)) => break,
                Ok(Split::Frame(frame, len)) => {
                    used += len;
                    self.peers.framed(peer, now.at);
                    match Header::decode_from(&frame, peer.slot as usize, &mut scratch) {
                        Ok(header) => {
                            self.frame(now, peer, &frame, &header, out);
                            if self.peers.is_live(peer) {
                                continue;
                            }
                            break;
                        }
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            self.counts.bad_frames += 1;
            self.close_peer(now, peer, &fault, out);
            break;
        }
        self.scratch = scratch;
        self.pass(now, out);
        if self.peers.is_live(peer) {
            used
        } else {
            bytes.len()
        }
    }

    /// Moves the frames that wait for a peer to the end of `into`.
    pub fn take_frames(&mut self, peer: PeerId, into: &mut Vec<u8>) {
        self.peers.take_frames(peer, into);
    }

    /// When [`Input::Tick`] has something to do, ms; `u64::MAX`: never.
    pub fn wake_at(&self) -> u64 {
        if !self.peers.written.is_empty() {
            return 0;
        }
        let wakes = [
            self.requests.next_wake(),
            self.producers.next_wake(),
            self.consumers.next_wake(),
            self.refresh.next_wake(&self.routes),
            self.heartbeats.next_wake(),
            self.life.next_wake(),
            (self.peers.len() > 0).then_some(self.housekeeping_at),
        ];
        wakes.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Does what is due.
    fn pass(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.peers.written.is_empty() {
            for who in std::mem::take(&mut self.peers.written) {
                match who {
                    OneWay::Send(id) => self.one_way_written(now, id, out),
                    OneWay::Invoke(ticket) => done(out, ticket, Ok(Answer::Nothing)),
                }
            }
        }
        let mut ended = std::mem::take(&mut self.ended);
        self.requests.expire(now.at, &mut ended);
        for pending in ended.drain(..) {
            self.timed_out(now, pending, out);
        }
        self.ended = ended;
        self.pass_waiting_sends(now, out);
        self.pass_consumers(now, out);
        self.pass_probes(now, out);
        self.pass_refresh(now, out);
        self.pass_heartbeats(now, out);
        if now.at >= self.housekeeping_at {
            self.housekeeping_at = now.at + HOUSEKEEPING_MS;
            let before = now.at.saturating_sub(self.settings.channel_idle_ms);
            for peer in self.peers.idle(before) {
                self.close_peer(now, peer, "not used for long", out);
            }
        }
        self.pass_life(now, out);
    }

    fn command(&mut self, now: Now, mut command: Command, out: &mut Vec<Output>) {
        if self.life.refuses(&command) {
            if let Some(ticket) = command.ticket_mut() {
                done(out, *ticket, Err(ErrorKind::NotRunning.into()));
            }
            return;
        }
        let Some(command) = self.consumer_command(now, command, out) else {
            return;
        };
        match command {
            Command::NameServers(addresses) => self.nameservers.replace(&addresses),
            Command::StartProducer {
                ticket,
                producer,
                settings,
            } => self.start_producer(ticket, producer, settings, out),
            Command::StopProducer {
                ticket,
                producer,
                wait_ms,
            } => self.stop_producer(now, ticket, producer, wait_ms, out),
            Command::Send {
                ticket,
                producer,
                send,
            } => self.send(now, ticket, producer, send, out),
            Command::PublishQueues {
                ticket,
                producer,
                topic,
                timeout_ms,
            } => self.publish_queues(now, ticket, producer, &topic, timeout_ms, out),
            Command::Invoke {
                ticket,
                target,
                request,
                timeout_ms,
                one_way,
            } => self.invoke(now, ticket, target, *request, timeout_ms, one_way, out),
            Command::Shutdown { ticket, wait_ms } => self.shutdown(now, ticket, wait_ms, out),
            mut other => {
                if let Some(ticket) = other.ticket_mut() {
                    done(out, *ticket, Err(ErrorKind::NotRunning.into()));
                }
            }
        }
    }

    /// A whole frame has come.
    fn frame(
        &mut self,
        now: Now,
        peer: PeerId,
        frame: &Frame<'_>,
        header: &Header<'_>,
        out: &mut Vec<Output>,
    ) {
        if !header.fixed.is_response() {
            return self.asked_by_broker(now, peer, frame, header, out);
        }
        let Some(pending) = self.requests.take(header.fixed.opaque, peer) else {
            self.counts.unknown_answers += 1;
            return;
        };
        if !self.settings.request_hooks.is_empty() {
            let response = Response::from_header(frame, header);
            let address = self.peers.address(peer).cloned();
            for hook in self.settings.request_hooks.iter() {
                hook.after_answer(
                    address.as_deref().unwrap_or_default(),
                    pending.code,
                    &response,
                );
            }
        }
        match pending.purpose {
            Purpose::Send(id) => self.send_answered(now, id, header, out),
            Purpose::NameServer(ask) => {
                let response = Response::from_header(frame, header);
                self.nameserver_answered(now, ask, response, out);
            }
            Purpose::Heartbeat => {
                self.heartbeats.answered();
                if header.fixed.code == 0 {
                    self.consumers_announced(now, out);
                }
            }
            Purpose::Consumer { consumer, call } => {
                let response = Response::from_header(frame, header);
                self.consumer_answered(now, consumer, call, Ok(response));
            }
            Purpose::Probe { producer, broker } => self.producers.probed(producer, broker),
            Purpose::Invoke(ticket) => {
                let response = Box::new(Response::from_header(frame, header));
                done(out, ticket, Ok(Answer::Response(response)));
            }
            Purpose::Forget => {}
        }
    }

    /// A request has no answer: `error` says why, `reached` whether the peer was ever there.
    fn request_failed(
        &mut self,
        now: Now,
        pending: Pending<Purpose>,
        error: Error,
        reached: bool,
        out: &mut Vec<Output>,
    ) {
        match pending.purpose {
            Purpose::Send(id) => self.send_failed(now, id, error, reached, out),
            Purpose::NameServer(ask) => self.nameserver_failed(now, ask, &error, out),
            Purpose::Invoke(ticket) => {
                let elapsed = now.at.saturating_sub(pending.sent_at);
                done(out, ticket, Err(error.after(elapsed, 1)));
            }
            Purpose::Consumer { consumer, call } => {
                let elapsed = now.at.saturating_sub(pending.sent_at);
                self.consumer_answered(now, consumer, call, Err(error.after(elapsed, 1)));
            }
            Purpose::Heartbeat | Purpose::Probe { .. } | Purpose::Forget => {}
        }
    }

    fn timed_out(&mut self, now: Now, pending: Pending<Purpose>, out: &mut Vec<Output>) {
        let (peer, sent_at) = (pending.peer, pending.sent_at);
        let limit_ms = pending.limit_ms();
        let mut error = Error::new(ErrorKind::Timeout { limit_ms });
        if let Some(address) = self.peers.address(peer) {
            error = error.of_address(address);
        }
        self.request_failed(now, pending, error, true, out);
        if self.peers.is_dead(peer, sent_at, now.at) {
            self.close_peer(now, peer, "no answers come by it", out);
        }
    }

    /// Gives a connection up.
    fn close_peer(&mut self, now: Now, peer: PeerId, why: &str, out: &mut Vec<Output>) {
        if self.peers.is_live(peer) {
            out.push(Output::Close {
                peer,
                why: why.to_owned(),
            });
            self.end_peer(now, peer, why, out);
        }
    }

    /// A connection has ended, and with it all that was asked by it.
    fn end_peer(&mut self, now: Now, peer: PeerId, why: &str, out: &mut Vec<Output>) {
        let Some(ended) = self.peers.end(peer) else {
            return;
        };
        self.consumers.end_peer(peer);
        let Ended {
            address,
            was_open,
            one_way,
        } = ended;
        let error = || {
            let why = why.to_owned();
            let kind = if was_open {
                ErrorKind::Disconnected { why }
            } else {
                ErrorKind::Connect { why }
            };
            Error::new(kind).of_address(&address)
        };
        for who in one_way {
            // Sends have an entry among the requests.
            if let OneWay::Invoke(ticket) = who {
                done(out, ticket, Err(error()));
            }
        }
        let mut drained = Vec::new();
        self.requests.drain_peer(peer, &mut drained);
        for pending in drained {
            self.request_failed(now, pending, error(), was_open, out);
        }
    }

    /// The connection to an address; a new one to a broker begins with a heartbeat.
    fn peer_to(&mut self, now: Now, address: &Arc<str>, out: &mut Vec<Output>) -> PeerId {
        let (peer, new) = self.peers.to(address, now.at, out);
        if new && !self.nameservers.contains(address) && self.is_broker(address) {
            self.heartbeat_to(now, peer, out);
        }
        peer
    }

    fn is_broker(&self, address: &str) -> bool {
        let mut addresses = self.routes.brokers().flat_map(|b| b.addresses.values());
        addresses.any(|known| **known == *address)
    }

    /// Sends a request whose answer is awaited until `deadline`.
    fn ask(
        &mut self,
        now: Now,
        peer: PeerId,
        mut request: Request,
        deadline: u64,
        purpose: Purpose,
        out: &mut Vec<Output>,
    ) -> Result<()> {
        self.before_request(peer, &mut request);
        let Some(buffer) = self.peers.buffer(peer) else {
            return Err(too_much_out());
        };
        request.fixed.opaque = self.requests.insert(Pending {
            peer,
            sent_at: now.at,
            deadline,
            code: request.fixed.code,
            purpose,
        });
        request.encode(buffer);
        self.peers.said(peer, now.at, out);
        Ok(())
    }

    /// Sends a request that has no answer.
    fn tell(
        &mut self,
        now: Now,
        peer: PeerId,
        mut request: Request,
        out: &mut Vec<Output>,
    ) -> Result<()> {
        request.fixed.flag |= FLAG_ONE_WAY;
        self.before_request(peer, &mut request);
        let Some(buffer) = self.peers.buffer(peer) else {
            return Err(too_much_out());
        };
        request.encode(buffer);
        self.peers.said(peer, now.at, out);
        Ok(())
    }

    fn before_request(&self, peer: PeerId, request: &mut Request) {
        request.fixed.language = LANGUAGE_RUST;
        if !self.settings.request_hooks.is_empty() {
            let address = self.peers.address(peer).map_or("", |address| address);
            for hook in self.settings.request_hooks.iter() {
                hook.before_request(address, request);
            }
        }
    }

    /// Tells a broker that a group has no member here any longer, where there is a
    /// connection to it.
    fn unregister(&mut self, now: Now, field: &str, group: &str, out: &mut Vec<Output>) {
        let addresses: Vec<Arc<str>> = self
            .routes
            .brokers()
            .flat_map(|broker| broker.addresses.values().cloned())
            .collect();
        for address in addresses {
            let Some(peer) = self.peers.open_to(&address) else {
                continue;
            };
            let request = Request::new(request::UNREGISTER_CLIENT)
                .with("clientID", &self.client_id)
                .with(field, group);
            let deadline = now.at + self.settings.api_timeout_ms;
            // At the bound the broker notices when the connection ends.
            let _ = self.ask(now, peer, request, deadline, Purpose::Forget, out);
        }
    }
}

fn too_much_out() -> Error {
    let what = "bytes that wait for one connection";
    let limit = peers::OUT_BYTES_MAX as u64;
    ErrorKind::TooMuchInFlight { what, limit }.into()
}

fn done(out: &mut Vec<Output>, ticket: Ticket, result: Result<Answer>) {
    out.push(Output::Done { ticket, result });
}

/// The body of a request made from JSON.
fn json_body<T: serde::Serialize>(value: &T) -> Bytes {
    crate::wire::body::json::encode(value).into()
}
