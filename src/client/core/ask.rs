//! Questions to nameservers, put to one after the other until one answers, and raw requests.

use std::collections::HashMap;
use std::sync::Arc;

use super::io::{Answer, Now, Output, Target, Ticket};
use super::nameservers::Round;
use super::route_check::{self, Checked};
use super::{Core, OneWay, Purpose, done};
use crate::client::error::{Error, ErrorKind, Result};
use crate::client::settings::check_address;
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};

/// Open questions.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: HashMap<u64, Ask>,
    next: u64,
}

#[derive(Debug)]
struct Ask {
    what: What,
    request: Request,
    round: Round,
    /// Who is being asked.
    address: Option<Arc<str>>,
    /// Nobody is asked after this, ms.
    deadline: u64,
    began: u64,
    /// One of them knows that there is nothing.
    nothing: bool,
    /// The first answer that made no sense.
    bad_route: Option<String>,
}

#[derive(Debug)]
enum What {
    Route(RouteAsk),
    Invoke(Ticket),
}

/// For which topic a route is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteAsk {
    pub topic: u32,
    /// Whether it is one of the regular questions.
    pub refresh: bool,
    /// Most queues, where it is the template that is asked for.
    pub template: Option<u32>,
}

/// What nameservers know of a topic.
#[derive(Debug)]
pub(super) enum Found {
    Route(Checked),
    Nothing,
}

impl Core {
    /// Asks for the route of `name` on behalf of `ask`.
    pub(super) fn ask_for_route(
        &mut self,
        now: Now,
        ask: RouteAsk,
        name: Arc<str>,
        out: &mut Vec<Output>,
    ) {
        let request = Request::new(request::GET_ROUTEINFO_BY_TOPIC).with("topic", name);
        self.begin_ask(now, What::Route(ask), request, u64::MAX, out);
    }

    /// Sends a raw request.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn invoke(
        &mut self,
        now: Now,
        ticket: Ticket,
        target: Target,
        request: Request,
        timeout_ms: u64,
        one_way: bool,
        out: &mut Vec<Output>,
    ) {
        let deadline = now.at + timeout_ms;
        let address = match target {
            Target::NameServer => {
                return self.begin_ask(now, What::Invoke(ticket), request, deadline, out);
            }
            Target::Address(address) => address,
        };
        if let Err(error) = check_address("address", &address) {
            return done(out, ticket, Err(error));
        }
        let peer = self.peer_to(now, &address, out);
        let sent = if one_way {
            let told = self.tell(now, peer, request, out);
            if told.is_ok() {
                self.peers.one_way(peer, OneWay::Invoke(ticket));
            }
            told
        } else {
            self.ask(now, peer, request, deadline, Purpose::Invoke(ticket), out)
        };
        if let Err(error) = sent {
            done(out, ticket, Err(error.of_address(&address)));
        }
    }

    fn begin_ask(
        &mut self,
        now: Now,
        what: What,
        request: Request,
        deadline: u64,
        out: &mut Vec<Output>,
    ) {
        self.asks.next += 1;
        let number = self.asks.next;
        let ask = Ask {
            what,
            request,
            round: Round::default(),
            address: None,
            deadline,
            began: now.at,
            nothing: false,
            bad_route: None,
        };
        self.asks.open.insert(number, ask);
        self.ask_next(now, number, out);
    }

    /// Puts a question to the next nameserver, or ends it where there is none left.
    fn ask_next(&mut self, now: Now, number: u64, out: &mut Vec<Output>) {
        loop {
            let Some(ask) = self.asks.open.get_mut(&number) else {
                return;
            };
            let address = if now.at < ask.deadline {
                self.nameservers.next(&mut ask.round)
            } else {
                None
            };
            let Some(address) = address else {
                return self.end_ask(now, number, out);
            };
            ask.address = Some(address.clone());
            let request = ask.request.clone();
            let limit = now.at + self.settings.api_timeout_ms;
            let deadline = limit.min(ask.deadline);
            let peer = self.peer_to(now, &address, out);
            let purpose = Purpose::NameServer(number);
            match self.ask(now, peer, request, deadline, purpose, out) {
                Ok(()) => return,
                Err(error) => self.note_failure(number, &error),
            }
        }
    }

    fn note_failure(&mut self, number: u64, error: &Error) {
        if let Some(ask) = self.asks.open.get_mut(&number) {
            let address = ask.address.take();
            let address = address.as_deref().unwrap_or_default();
            ask.round.tried.push(format!("{address}: {}", error.kind()));
        }
    }

    /// A nameserver did not answer.
    pub(super) fn nameserver_failed(
        &mut self,
        now: Now,
        number: u64,
        error: &Error,
        out: &mut Vec<Output>,
    ) {
        let ask = self.asks.open.get(&number);
        if let Some(address) = ask.and_then(|ask| ask.address.clone()) {
            self.nameservers.failed(&address);
        }
        self.note_failure(number, error);
        self.ask_next(now, number, out);
    }

    /// A nameserver answered.
    pub(super) fn nameserver_answered(
        &mut self,
        now: Now,
        number: u64,
        answer: Response,
        out: &mut Vec<Output>,
    ) {
        let Some(ask) = self.asks.open.get_mut(&number) else {
            return;
        };
        let ask_route = match &ask.what {
            What::Invoke(ticket) => {
                let ticket = *ticket;
                self.asks.open.remove(&number);
                return done(out, ticket, Ok(Answer::Response(Box::new(answer))));
            }
            What::Route(ask_route) => *ask_route,
        };
        match answer.code {
            response::SUCCESS => match route_check::check(&answer.body) {
                Ok(route) => {
                    self.asks.open.remove(&number);
                    return self.route_answered(now, ask_route, Ok(Found::Route(route)), out);
                }
                Err(what) => {
                    let address = ask.address.as_deref().unwrap_or_default();
                    ask.bad_route.get_or_insert(format!("{address}: {what}"));
                    let error = ErrorKind::BadRoute { what }.into();
                    return self.nameserver_failed(now, number, &error, out);
                }
            },
            response::TOPIC_NOT_EXIST => {
                // One that has just started may know less than the others.
                ask.nothing = true;
                ask.address = None;
                if !ask_route.refresh {
                    return self.ask_next(now, number, out);
                }
                return self.end_ask(now, number, out);
            }
            _ => {}
        }
        let error = ErrorKind::Answered {
            code: answer.code,
            remark: answer.remark.unwrap_or_default(),
        };
        self.nameserver_failed(now, number, &error.into(), out);
    }

    /// No nameserver is left to ask.
    fn end_ask(&mut self, now: Now, number: u64, out: &mut Vec<Output>) {
        let Some(ask) = self.asks.open.remove(&number) else {
            return;
        };
        let failure = |round: Round| {
            Error::new(match ask.bad_route {
                Some(what) => ErrorKind::BadRoute { what },
                None if self.nameservers.is_empty() => ErrorKind::NoNameServer,
                None => ErrorKind::NameServers { tried: round.tried },
            })
        };
        match ask.what {
            What::Route(route) => {
                let found: Result<Found> = if ask.nothing {
                    Ok(Found::Nothing)
                } else {
                    Err(failure(ask.round))
                };
                self.route_answered(now, route, found, out);
            }
            What::Invoke(ticket) => {
                let elapsed = now.at.saturating_sub(ask.began);
                let tries = ask.round.tried.len() as u32;
                let error = failure(ask.round).after(elapsed, tries);
                done(out, ticket, Err(error));
            }
        }
    }

    /// Ends all raw requests that are put to nameservers.
    pub(super) fn end_invokes(&mut self, out: &mut Vec<Output>) {
        for (_, ask) in self.asks.open.drain() {
            if let What::Invoke(ticket) = ask.what {
                done(out, ticket, Err(ErrorKind::NotRunning.into()));
            }
        }
    }
}
