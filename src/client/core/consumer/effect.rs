//! What a consumer wants done.

use std::sync::Arc;

use crate::client::core::io::{Answer, DeliveryId, Outgoing, Ticket};
use crate::client::error::Error;
use crate::client::message::{MessageQueue, ReceivedMessage};
use crate::wire::command::{Request, Response};

/// Broker that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The broker with this name: the one with this id (0: the master) where it is there,
    /// else the master, else any.
    Broker {
        /// Name of the broker.
        name: Arc<str>,
        /// Its id.
        id: u64,
    },
    /// Any broker that has the topic.
    AnyOf(Arc<str>),
}

/// Messages for a listener.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What [`super::Consumer::consumed`] is told with; each once.
    pub delivery: DeliveryId,
    /// The queue that they are from.
    pub queue: MessageQueue,
    /// The messages, at least one. Bodies are as they were stored: perhaps compressed.
    pub messages: Vec<ReceivedMessage>,
}

/// Something an application may want to hear of.
#[derive(Clone, Debug)]
pub enum Notice {
    /// This consumer's queues of a topic are others now.
    Assigned {
        /// The topic.
        topic: Arc<str>,
        /// All its queues.
        all: Vec<MessageQueue>,
        /// Those of this consumer.
        mine: Vec<MessageQueue>,
    },
    /// Something went wrong; it is tried again.
    Fault(Error),
}

/// Who waits for the response to a request of a broker: a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo(pub u64);

/// What a consumer wants done.
#[derive(Debug)]
pub enum Effect {
    /// Ask a broker; [`super::Consumer::answered`] brings what it says, or why it said nothing.
    Ask {
        /// Number of the question.
        call: u64,
        /// Whom.
        to: Target,
        /// What; the opaque is not set.
        request: Request,
        /// How long an answer may take, ms.
        timeout_ms: u64,
    },
    /// Tell a broker something that needs no answer (one-way).
    Tell {
        /// Whom.
        to: Target,
        /// What.
        request: Request,
    },
    /// Give messages to a listener.
    Deliver(Batch),
    /// Tell all brokers at once what the consumer wants.
    Heartbeat,
    /// Ask for the route of a topic; [`super::Consumer::routed`] brings it.
    Route(Arc<str>),
    /// Send a message; [`super::Consumer::answered`] brings an answer with code 0, or why it is
    /// not stored.
    Send {
        /// Number of the question.
        call: u64,
        /// What.
        outgoing: Box<Outgoing>,
    },
    /// Read a file of offsets; [`super::Consumer::offsets_loaded`] brings it.
    LoadOffsets {
        /// Its path below the folder of offsets.
        file: String,
    },
    /// Replace a file of offsets; [`super::Consumer::offsets_stored`] tells how it went.
    StoreOffsets {
        /// Its path below the folder of offsets.
        file: String,
        /// Its content.
        content: Vec<u8>,
    },
    /// A call is answered.
    Done {
        /// The caller.
        ticket: Ticket,
        /// The answer.
        result: Result<Answer, Error>,
    },
    /// Answer a request of a broker.
    Respond {
        /// To which.
        to: ReplyTo,
        /// The response.
        response: Response,
    },
    /// For the application.
    Notice(Notice),
    /// It could not start, and is over.
    Failed(Error),
    /// Everything is done; brokers may be told that the consumer is gone.
    Stopped {
        /// The first offset that could not be stored, and why.
        lost: Option<Error>,
    },
}
