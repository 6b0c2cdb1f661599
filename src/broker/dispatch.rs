//! From a frame to the handler of its request, and from a lane to the same.

use std::rc::Rc;

use bytes::Bytes;

use super::message::{Ask, Message, QueueJob, ReplyTo};
use super::{BrokerShard, DEFERRED_MAX, now_ms};
use crate::shard::{ConnId, Flow, LaneKind, LocalEvent, Service, ShardId, spawn};
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};
use crate::wire::frame::{Frame, Serialize};
use crate::wire::header::{Header, Scratch};

/// Version from which clients understand GO_AWAY (`V5_3_1`): they connect again
/// and send the request again.
const GO_AWAY_VERSION: i32 = 475;
/// Response code of a broker that is stopping.
const GO_AWAY: i32 = 1500;

impl Service for BrokerShard {
    type Message = Message;

    fn frame(&self, conn: ConnId, frame: &Frame<'_>) -> Flow {
        if self.turn_ms.get() == 0 {
            self.turn_ms.set(now_ms());
        }
        let mut scratch = self.scratch.borrow_mut();
        self.handle(conn, frame, &mut scratch)
    }

    fn closed(&self, conn: ConnId) {
        self.calls_of_closed(conn);
        self.shard
            // Behind its requests, so that none of them brings it back.
            .send(ShardId::CONTROL, LaneKind::Request, Message::Closed(conn));
    }

    fn message(&self, from: ShardId, message: Message) -> Option<Message> {
        match message {
            Message::Append(job, to) => {
                if self.append(&job.job(), &to).is_err() {
                    return Some(Message::Append(job, to));
                }
            }
            Message::Pull(job) => {
                if let Err(super::read::TooCold(job)) = self.pull_owned(*job) {
                    return Some(Message::Pull(job));
                }
            }
            Message::Queue(job, to) => {
                if job.0.may_load() && self.cold.get() >= super::read::COLD_MAX {
                    return Some(Message::Queue(job, to));
                }
                self.queue_job(*job, to);
            }
            Message::Control(request, to) => {
                let (request, peer) = *request;
                self.control_request(request, peer, to);
            }
            Message::Reply(to, pieces) => {
                self.forwarded_done(&to);
                self.write_pieces(to.conn, pieces);
            }
            Message::Sent(to, sent) => {
                self.forwarded_done(&to);
                self.write_sent(&to, &sent);
            }
            Message::Push(conn, pieces) => self.write_pieces(conn, pieces),
            Message::Done(to) => self.forwarded_done(&to),
            Message::Closed(conn) => self.client_closed(conn),
            Message::Ask(number, ask) => self.answer_ask(from, number, *ask),
            Message::Answer(number, answer) => self.asks.answered(number, *answer),
            Message::Notify(conn, request) => self.notify_client(conn, *request),
            Message::Topic(config) => self.view.borrow_mut().set_topic(config),
            Message::TopicGone(topic) => self.view.borrow_mut().remove_topic(&topic),
            Message::Group(change) => self.view.borrow_mut().set_group(change),
            Message::Settings(settings) => {
                let interval = settings.flush_interval_commit_log_ms;
                self.store.set_flush_interval(interval);
                *self.settings.borrow_mut() = settings;
            }
        }
        None
    }

    fn turn_end(&self) {
        self.turn_ms.set(0);
        self.wake_arrivals();
    }

    fn room(&self) -> &LocalEvent {
        &self.room
    }
}

impl BrokerShard {
    fn handle(&self, conn: ConnId, frame: &Frame<'_>, scratch: &mut Scratch) -> Flow {
        let header = match Header::decode_from(frame, conn.slot as usize, scratch) {
            Ok(header) => header,
            Err(error) => {
                self.shard.count_bad(conn, &error);
                return Flow::Close;
            }
        };
        if header.fixed.is_response() {
            self.client_answered(conn, frame, &header);
            return Flow::Continue;
        }
        let to = ReplyTo {
            conn,
            opaque: header.fixed.opaque,
            serialize: frame.serialize,
            one_way: header.fixed.is_one_way(),
            awaited: false,
            expected: 0,
        };
        if self.stopping.get() {
            return self.refuse_stopping(&to, header.fixed.version);
        }
        match header.fixed.code {
            request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                self.send(to, frame, &header)
            }
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => self.pull(to, frame, &header),
            request::QUERY_CONSUMER_OFFSET
            | request::UPDATE_CONSUMER_OFFSET
            | request::SEARCH_OFFSET_BY_TIMESTAMP
            | request::GET_MAX_OFFSET
            | request::GET_MIN_OFFSET
            | request::GET_EARLIEST_MSG_STORETIME => self.queue_request(to, frame, &header),
            request::QUERY_MESSAGE => self.query_message(to, &Request::from_header(frame, &header)),
            _ => self.to_control(to, Request::from_header(frame, &header)),
        }
    }

    fn refuse_stopping(&self, to: &ReplyTo, version: i32) -> Flow {
        let code = if version > GO_AWAY_VERSION {
            GO_AWAY
        } else {
            response::SERVICE_NOT_AVAILABLE
        };
        self.refuse(to, code, "the broker is stopping");
        Flow::Continue
    }

    /// Sends a request on to the control shard.
    fn to_control(&self, to: ReplyTo, request: Request) -> Flow {
        let Some(peer) = self.shard.peer(to.conn) else {
            return Flow::Continue;
        };
        if self.id() == ShardId::CONTROL {
            if self.deferred.get() >= DEFERRED_MAX {
                return Flow::Later;
            }
            self.control_request(request, peer, to);
            return Flow::Continue;
        }
        if !self.may_forward() {
            return Flow::Later;
        }
        let message = Message::Control(Box::new((request, peer)), to);
        self.forward(ShardId::CONTROL, message);
        Flow::Continue
    }

    /// Sends a request about a queue to the queue's owner.
    pub(super) fn to_queue_owner(
        &self,
        mut to: ReplyTo,
        job: QueueJob,
        topic: &str,
        queue_id: i32,
    ) -> Flow {
        let owner = {
            let view = self.view.borrow();
            match view.topic(topic).and_then(|topic| topic.owner(queue_id)) {
                Some(owner) => owner,
                None => view.placement().owner(topic, queue_id),
            }
        };
        let job = (job, topic.to_owned(), queue_id);
        if owner == self.id() {
            if job.0.may_load() && self.cold.get() >= super::read::COLD_MAX {
                return Flow::Later;
            }
            self.queue_job(job, to);
            return Flow::Continue;
        }
        if !self.may_forward() {
            return Flow::Later;
        }
        self.await_answer(&mut to, 0);
        self.forward(owner, Message::Queue(Box::new(job), to));
        Flow::Continue
    }

    /// Runs what a request must wait for as a task, counted against the bound.
    pub(super) fn spawn_deferred(&self, task: impl Future<Output = ()> + 'static) {
        self.deferred.set(self.deferred.get() + 1);
        let me = self.rc();
        // The task begins with the next turn, not inside this call: what is
        // borrowed now is free by then.
        spawn("a request that waits", async move {
            crate::shard::next_turn().await;
            task.await;
            let before = me.deferred.get();
            me.deferred.set(before - 1);
            if before == DEFERRED_MAX {
                me.room.notify();
            }
        });
    }

    /// Asks the control shard, then handles the frame again; answers itself where
    /// the control shard refuses.
    pub(super) fn defer(&self, to: ReplyTo, frame: &Frame<'_>, ask: Ask) {
        let copy = FrameCopy::new(frame);
        let me = self.rc();
        self.spawn_deferred(async move {
            match me.ask(ShardId::CONTROL, ask).await {
                super::message::Answer::Refused(code, remark) => me.refuse(&to, code, remark),
                _ => {
                    copy.again(&me, |me, frame, header| match header.fixed.code {
                        request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => {
                            me.pull(to, frame, header)
                        }
                        request::UPDATE_CONSUMER_OFFSET => me.queue_request(to, frame, header),
                        _ => me.send(to, frame, header),
                    })
                    .await;
                }
            }
            me.wake_arrivals();
        });
    }

    fn control_request(&self, request: Request, peer: std::net::SocketAddr, to: ReplyTo) {
        let me = self.rc();
        self.spawn_deferred(async move {
            let code = request.fixed.code;
            let conn = super::control::ConnInfo {
                id: to.conn,
                addr: peer,
            };
            match me.handle_control(conn, request).await {
                Some(response) => me.reply(&to, &response),
                None if !me.is_local(&to) => {
                    me.shard
                        .send(to.conn.shard, LaneKind::Reply, Message::Done(to));
                }
                None => {}
            }
            tracing::trace!(code, "control request done");
        });
    }

    /// Sends a request to a client of this shard.
    pub(super) fn notify_client(&self, conn: ConnId, mut request: Request) {
        request.fixed.flag |= crate::wire::header::FLAG_ONE_WAY;
        request.fixed.opaque = self.asks.next_opaque();
        self.shard.write(conn, |out| request.encode(out.buffer()));
    }

    /// A client's answer to a request of ours.
    fn client_answered(&self, conn: ConnId, frame: &Frame<'_>, header: &Header<'_>) {
        let response = Response::from_header(frame, header);
        self.asks
            .client_answered(conn, header.fixed.opaque, response);
    }
}

/// A frame that is handled again later.
pub(super) struct FrameCopy {
    serialize: Serialize,
    header: Bytes,
    body: Bytes,
}

impl FrameCopy {
    pub fn new(frame: &Frame<'_>) -> FrameCopy {
        FrameCopy {
            serialize: frame.serialize,
            header: Bytes::copy_from_slice(frame.header),
            body: Bytes::copy_from_slice(frame.body),
        }
    }

    /// Hands the frame to `handle`, again and again until there is room for it.
    pub async fn again(
        &self,
        me: &Rc<BrokerShard>,
        handle: impl Fn(&BrokerShard, &Frame<'_>, &Header<'_>) -> Flow,
    ) {
        loop {
            let frame = Frame {
                serialize: self.serialize,
                header: &self.header,
                body: &self.body,
            };
            let mut scratch = Scratch::default();
            let Ok(header) = Header::decode(&frame, &mut scratch) else {
                return;
            };
            if handle(me, &frame, &header) != Flow::Later {
                return;
            }
            me.room.wait().await;
        }
    }
}
