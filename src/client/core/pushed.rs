//! What brokers ask of this client.

use super::Core;
use super::io::{Now, Output, PeerId};
use crate::wire::codes::request;
use crate::wire::command::{Request, Response};
use crate::wire::frame::Frame;
use crate::wire::header::Header;

impl Core {
    /// A request has come from a broker.
    pub(super) fn asked_by_broker(
        &mut self,
        now: Now,
        peer: PeerId,
        frame: &Frame<'_>,
        header: &Header<'_>,
        out: &mut Vec<Output>,
    ) {
        let request = Request::from_header(frame, header);
        let code = request.fixed.code;
        let answer = match code {
            request::CHECK_TRANSACTION_STATE => {
                self.counts.transaction_checks += 1;
                let what = "this client has no transactional producer: transactions are not served";
                Response::error(
                    crate::wire::codes::response::REQUEST_CODE_NOT_SUPPORTED,
                    what,
                )
            }
            _ if self.consumer_requested(now, peer, &request) => return,
            _ => {
                self.counts.unknown_requests += 1;
                Response::not_supported(code)
            }
        };
        if !request.fixed.is_one_way() {
            self.answer_broker(now, peer, &request, &answer, out);
        }
    }

    /// Answers a request of a broker. At the bound of the connection it is dropped: the
    /// broker asks again.
    pub(super) fn answer_broker(
        &mut self,
        now: Now,
        peer: PeerId,
        request: &Request,
        answer: &Response,
        out: &mut Vec<Output>,
    ) {
        if let Some(buffer) = self.peers.buffer(peer) {
            answer.encode(buffer, request.serialize, request.fixed.opaque);
            self.peers.said(peer, now.at, out);
        }
    }
}
