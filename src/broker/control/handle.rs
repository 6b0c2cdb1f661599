//! From request code to the function that answers it.
//!
//! Functions that need no other shard are synchronous and work on the state
//! itself. Those that do are given the cell that holds it, and borrow it between
//! their questions, never across one: meanwhile other requests are answered.

use std::cell::RefCell;

use super::answer::Answer;
use super::settings::ControlSettings;
use super::view::Effects;
use super::{
    ConnInfo, Control, client_requests, consume_stats, group_requests, queue_requests, relay,
    topic_requests,
};
use crate::broker::peers::Peers;
use crate::wire::codes::request as code;
use crate::wire::command::{Request, Response};

/// Whether [`handle`] knows the code. GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG and
/// GET_ALL_DELAY_OFFSET are answered where settings and delays live.
pub const fn is_control(request_code: i32) -> bool {
    matches!(
        request_code,
        code::HEART_BEAT
            | code::UNREGISTER_CLIENT
            | code::GET_CONSUMER_LIST_BY_GROUP
            | code::LOCK_BATCH_MQ
            | code::UNLOCK_BATCH_MQ
            | code::GET_ALL_CONSUMER_OFFSET
            | code::CHECK_CLIENT_CONFIG
            | code::UPDATE_AND_CREATE_TOPIC
            | code::UPDATE_AND_CREATE_TOPIC_LIST
            | code::GET_ALL_TOPIC_CONFIG
            | code::GET_BROKER_RUNTIME_INFO
            | code::VIEW_MESSAGE_BY_ID
            | code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            | code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            | code::GET_TOPIC_STATS_INFO
            | code::GET_CONSUMER_CONNECTION_LIST
            | code::GET_PRODUCER_CONNECTION_LIST
            | code::DELETE_SUBSCRIPTIONGROUP
            | code::GET_CONSUME_STATS
            | code::DELETE_TOPIC_IN_BROKER
            | code::INVOKE_BROKER_TO_RESET_OFFSET
            | code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            | code::QUERY_TOPIC_CONSUME_BY_WHO
            | code::GET_SYSTEM_TOPIC_LIST_FROM_BROKER
            | CLEAN_EXPIRED_CONSUMEQUEUE
            | code::GET_CONSUMER_RUNNING_INFO
            | code::CONSUME_MESSAGE_DIRECTLY
            | CLEAN_UNUSED_TOPIC
            | code::QUERY_CONSUME_QUEUE
            | code::GET_ALL_PRODUCER_INFO
            | DELETE_EXPIRED_COMMITLOG
            | code::QUERY_TOPICS_BY_CONSUMER
            | code::QUERY_SUBSCRIPTION_BY_CONSUMER
            | code::GET_TOPIC_CONFIG
            | code::GET_SUBSCRIPTIONGROUP_CONFIG
    )
}

/// Requests to tidy up, which this broker does by itself.
const CLEAN_EXPIRED_CONSUMEQUEUE: i32 = 306;
const CLEAN_UNUSED_TOPIC: i32 = 316;
const DELETE_EXPIRED_COMMITLOG: i32 = 329;

/// Answers a control request, on the control shard. What it changes is told to
/// shards, clients and nameservers before it returns; files are for the caller to
/// write, see `take_dirty` of the tables.
///
/// `None` means that nothing is to be answered, which no code asks for yet;
/// whether the sender wants the answer at all is for the caller to know.
pub async fn handle(
    control: &RefCell<Control>,
    peers: &Peers,
    settings: &ControlSettings,
    conn: ConnInfo,
    request: Request,
    now_ms: u64,
) -> Option<Response> {
    let request = &request;
    let answer = match request.fixed.code {
        code::HEART_BEAT => {
            let beat = client_requests::heartbeat;
            let done = beat(&mut control.borrow_mut(), conn, request, settings, now_ms);
            deliver(done, peers).await
        }
        code::UNREGISTER_CLIENT => {
            let unregister = client_requests::unregister;
            let done = unregister(&mut control.borrow_mut(), conn, request, settings);
            deliver(done, peers).await
        }
        code::UPDATE_AND_CREATE_TOPIC => {
            let update = topic_requests::update;
            let done = update(&mut control.borrow_mut(), request, settings, now_ms);
            deliver(changed(done), peers).await
        }
        code::UPDATE_AND_CREATE_TOPIC_LIST => {
            let update = topic_requests::update_list;
            let done = update(&mut control.borrow_mut(), request, settings, now_ms);
            deliver(changed(done), peers).await
        }
        code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => {
            let done = group_requests::update(&mut control.borrow_mut(), request, now_ms);
            deliver(changed(done), peers).await
        }
        code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => {
            let done = group_requests::update_list(&mut control.borrow_mut(), request, now_ms);
            deliver(changed(done), peers).await
        }
        code::DELETE_TOPIC_IN_BROKER => {
            topic_requests::delete(control, peers, request, now_ms).await
        }
        code::DELETE_SUBSCRIPTIONGROUP => {
            group_requests::delete(control, peers, request, now_ms).await
        }
        code::GET_TOPIC_STATS_INFO => {
            topic_requests::stats(control, peers, request, settings).await
        }
        code::QUERY_TOPIC_CONSUME_BY_WHO => {
            topic_requests::consumed_by(control, peers, request).await
        }
        code::GET_CONSUME_STATS => consume_stats::stats(control, peers, request, settings).await,
        code::INVOKE_BROKER_TO_RESET_OFFSET => {
            consume_stats::reset(control, peers, request, settings).await
        }
        code::QUERY_TOPICS_BY_CONSUMER => {
            consume_stats::topics_by_consumer(peers, request, settings).await
        }
        code::GET_ALL_CONSUMER_OFFSET => consume_stats::all_offsets(control, peers, now_ms).await,
        code::VIEW_MESSAGE_BY_ID => queue_requests::view_message(peers, request).await,
        code::QUERY_CONSUME_QUEUE => queue_requests::consume_queue(control, peers, request).await,
        code::GET_CONSUMER_RUNNING_INFO => relay::running_info(control, peers, request).await,
        code::CONSUME_MESSAGE_DIRECTLY => {
            relay::consume_directly(control, peers, request, settings).await
        }
        code::GET_BROKER_RUNTIME_INFO => {
            let stores = peers.store_info().await;
            let body = control.borrow().runtime.body(&stores, settings, now_ms);
            Ok(Response::body(body))
        }
        _ => local(&mut control.borrow_mut(), settings, request, now_ms),
    };
    Some(answer.unwrap_or_else(|early| early))
}

/// Answers what the control state alone can, and leaves everything as it is but
/// for locks.
fn local(
    control: &mut Control,
    settings: &ControlSettings,
    request: &Request,
    now_ms: u64,
) -> Answer {
    match request.fixed.code {
        code::GET_CONSUMER_LIST_BY_GROUP => client_requests::consumer_list(control, request),
        code::LOCK_BATCH_MQ => client_requests::lock(control, request, now_ms),
        code::UNLOCK_BATCH_MQ => client_requests::unlock(control, request),
        code::CHECK_CLIENT_CONFIG => client_requests::check_config(request, settings),
        code::GET_CONSUMER_CONNECTION_LIST => {
            client_requests::consumer_connections(control, request)
        }
        code::GET_PRODUCER_CONNECTION_LIST => {
            client_requests::producer_connections(control, request)
        }
        code::GET_ALL_PRODUCER_INFO => client_requests::all_producers(control),
        code::QUERY_SUBSCRIPTION_BY_CONSUMER => client_requests::subscription(control, request),
        code::GET_ALL_TOPIC_CONFIG => topic_requests::all(control, request),
        code::GET_TOPIC_CONFIG => topic_requests::get(control, request),
        code::GET_SYSTEM_TOPIC_LIST_FROM_BROKER => topic_requests::system_list(control),
        code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => group_requests::all(control, request),
        code::GET_SUBSCRIPTIONGROUP_CONFIG => group_requests::get(control, request),
        CLEAN_EXPIRED_CONSUMEQUEUE | CLEAN_UNUSED_TOPIC | DELETE_EXPIRED_COMMITLOG => {
            Ok(Response::ok())
        }
        unknown => Err(Response::not_supported(unknown)),
    }
}

fn changed(done: Result<Effects, Response>) -> (Answer, Effects) {
    match done {
        Ok(effects) => (Ok(Response::ok()), effects),
        Err(refused) => (Err(refused), Effects::default()),
    }
}

async fn deliver((answer, effects): (Answer, Effects), peers: &Peers) -> Answer {
    effects.deliver(peers).await;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_are_not_served_are_answered_so() {
        let settings = ControlSettings::default();
        let mut control = Control::new(&settings);
        for unknown in [0, -1, i32::MAX, 353, 9_999] {
            assert!(!is_control(unknown));
            let answer = local(&mut control, &settings, &Request::new(unknown), 0);
            assert_eq!(answer.unwrap_err().code, 3);
        }
    }

    #[test]
    fn requests_without_their_fields_change_nothing_and_say_what_is_missing() {
        let settings = ControlSettings::default();
        let mut control = Control::new(&settings);
        for served in [38, 41, 42, 203, 204, 345, 351, 352] {
            assert!(is_control(served));
            let answer = local(&mut control, &settings, &Request::new(served), 0);
            let refused = answer.unwrap_err();
            assert!(refused.code == 1 && refused.remark.is_some(), "{served}");
        }
        for served in [306, 316, 329, 46, 21, 201, 305, 328] {
            assert!(is_control(served));
            let answer = local(&mut control, &settings, &Request::new(served), 0);
            assert_eq!(answer.unwrap().code, 0, "{served}");
        }
        assert!(!control.topics.take_dirty() && !control.groups.take_dirty());
    }
}
