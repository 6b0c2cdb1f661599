//! Brokers that lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmq::client::{
    Batch, ClientSettings, Error, ErrorKind, Message, Producer, ProducerSettings, PushConsumer,
    PushConsumerSettings,
};
use ringmq::wire::command::{Request, Response};

use crate::Costs;
use crate::impostor::{Answer, Impostor, stored};
use crate::support::{client, timed};

fn is_send(request: &Request) -> bool {
    matches!(request.fixed.code, 10 | 310 | 320)
}

/// A producer whose only broker answers sends like this, and everything else well.
fn producer_at(
    answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> (Producer, Impostor) {
    let broker = Impostor::new(move |request| {
        if is_send(request) {
            answer(request)
        } else {
            Answer::Reply(Response::ok())
        }
    });
    let nameserver = Impostor::leading_to(broker.address, 4);
    let settings = ProducerSettings {
        send_timeout_ms: 600,
        ..ProducerSettings::new("lied-to")
    };
    let producer = Producer::start(&client(nameserver.address), settings).unwrap();
    (producer, broker)
}

/// The error of a send to such a broker, which names the broker.
fn lied_to(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Error {
    let _costs = Costs::count();
    let (producer, broker) = producer_at(answer);
    let (sent, took) = timed(|| producer.send(Message::new("Lies", "x")));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let error = sent.expect_err("a lie");
    eprintln!("{error}");
    let address = broker.address.to_string();
    assert!(
        error.to_string().contains(&address),
        "{error}: no word of {address}"
    );
    assert_eq!(error.place().topic.as_deref(), Some("Lies"));
    assert!(broker.requests() < 20, "{} requests", broker.requests());
    error
}

#[test]
fn garbage_ends_the_connection_with_a_word_about_it() {
    let error = lied_to(|_| Answer::Raw(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()));
    assert!(error.is_retryable());
    lied_to(|_| Answer::Raw(vec![0xff; 64]));
    lied_to(|_| Answer::Raw(vec![0, 0, 0, 5, 9, 0, 0, 0, 0]));
    // A frame whose header is none.
    lied_to(|_| Answer::Raw(b"\x00\x00\x00\x08\x00\x00\x00\x04null".to_vec()));
}

#[test]
fn a_frame_that_never_ends_is_a_timeout_and_an_ended_one_a_lost_connection() {
    let error = lied_to(|request| Answer::Cut(20, stored(request)));
    assert!(
        matches!(error.kind(), ErrorKind::Disconnected { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("frame"), "{error}");
    // Its length, and nothing else.
    let error = lied_to(|_| Answer::Raw(vec![0, 0xff, 0, 0]));
    assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error}");
}

#[test]
fn silence_is_a_timeout_and_a_closed_door_an_error() {
    let error = lied_to(|_| Answer::Silence);
    assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error}");
    assert!(error.elapsed_ms() >= 500, "{}", error.elapsed_ms());
    let error = lied_to(|_| Answer::Close);
    assert!(error.is_retryable(), "{error}");
}

#[test]
fn an_answer_to_another_request_is_none() {
    let error = lied_to(|request| Answer::ReplyTo(request.fixed.opaque + 77, stored(request)));
    assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error}");
    lied_to(|request| Answer::ReplyTo(i32::MIN, stored(request)));
}

#[test]
fn an_answer_without_its_fields_is_none() {
    let error = lied_to(|_| Answer::Reply(Response::ok()));
    assert!(
        matches!(error.kind(), ErrorKind::BadAnswer { .. }),
        "{error}"
    );
    lied_to(|_| {
        let answer = Response::ok().with("msgId", "x").with("queueId", "many");
        Answer::Reply(answer.with("queueOffset", "-"))
    });
}

#[test]
fn an_error_is_told_with_its_code_and_words() {
    let error = lied_to(|_| Answer::Reply(Response::error(13, "no\nsuch message")));
    assert_eq!(error.code(), Some(13));
    assert!(error.to_string().contains("no\\nsuch message"), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(error.tries(), 1);
}

#[test]
fn late_answers_are_nobodys_and_harm_no_later_request() {
    let _costs = Costs::count();
    let count = AtomicUsize::new(0);
    let (producer, _broker) = producer_at(move |request| {
        let n = count.fetch_add(1, Ordering::SeqCst) as i64;
        let answer = stored(request).with("queueOffset", n);
        // The first one comes when nobody waits for it any more.
        if n < 1 {
            Answer::Late(
                900,
                Response {
                    ext: answer.ext,
                    ..Response::ok()
                },
            )
        } else {
            Answer::Reply(answer)
        }
    });
    let error = producer.send(Message::new("Late", "x")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error}");
    for _ in 0..30 {
        producer.send(Message::new("Late", "x")).unwrap();
        std::thread::sleep(Duration::from_millis(40));
    }
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let _costs = Costs::count();
    let (producer, _broker) = producer_at(|request| Answer::Times(3, stored(request)));
    let sends: Vec<_> = (0..200)
        .map(|_| producer.send_async(Message::new("Twice", "x")))
        .collect();
    for send in sends {
        send.wait().unwrap();
    }
}

#[test]
fn answers_nobody_asked_for_cost_nothing_that_stays() {
    let _costs = Costs::count();
    let (producer, _broker) = producer_at(|request| {
        let mut bytes = Vec::new();
        for opaque in 0..2_000 {
            let answer = Response::body(vec![b'x'; 1_000]);
            answer.encode(&mut bytes, request.serialize, 1_000_000 + opaque);
        }
        stored(request).encode(&mut bytes, request.serialize, request.fixed.opaque);
        Answer::Raw(bytes)
    });
    for _ in 0..20 {
        producer.send(Message::new("Spam", "x")).unwrap();
    }
}

#[test]
fn requests_of_a_broker_that_make_no_sense_are_answered_or_ignored() {
    let _costs = Costs::count();
    let (producer, _broker) = producer_at(|request| {
        let mut bytes = Vec::new();
        for code in [39, 40, 220, 221, 307, 309, 12345, -1] {
            for (flag, ext) in [(0, true), (2, true), (0, false)] {
                let mut asked = Request::new(code).with_body(vec![b'{'; 10]);
                asked.fixed.flag = flag;
                if ext {
                    asked = asked
                        .with("consumerGroup", "a\nb")
                        .with("tranStateTableOffset", "x");
                }
                asked.encode(&mut bytes);
            }
        }
        stored(request).encode(&mut bytes, request.serialize, request.fixed.opaque);
        Answer::Raw(bytes)
    });
    for _ in 0..20 {
        producer.send(Message::new("Asked", "x")).unwrap();
    }
}

/// A push consumer whose only broker answers pulls like this; requests that it made in 3 s.
fn consumer_at(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> usize {
    let _costs = Costs::count();
    let own = Arc::new(std::sync::Mutex::new(None::<String>));
    let known = own.clone();
    let broker = Impostor::new(move |request| match request.fixed.code {
        11 | 361 => answer(request),
        34 => {
            let beat: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
            *known.lock().unwrap() = beat["clientID"].as_str().map(str::to_owned);
            Answer::Reply(Response::ok())
        }
        38 => {
            let ids: Vec<String> = known.lock().unwrap().iter().cloned().collect();
            let body = serde_json::json!({ "consumerIdList": ids });
            Answer::Reply(Response::body(body.to_string()))
        }
        14 => Answer::Reply(Response::ok().with("offset", 0)),
        30 | 31 => Answer::Reply(Response::ok().with("offset", 0)),
        _ => Answer::Reply(Response::ok()),
    });
    let nameserver = Impostor::leading_to(broker.address, 1);
    let settings = ClientSettings {
        rebalance_interval_ms: 200,
        ..client(nameserver.address)
    };
    let calls = Arc::new(AtomicUsize::new(0));
    let listener = calls.clone();
    let consumer = PushConsumer::start(
        &settings,
        PushConsumerSettings::new("lied-to"),
        [("Lies", "*")],
        move |_: &Batch| {
            listener.fetch_add(1, Ordering::SeqCst);
        },
    )
    .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let requests = broker.requests();
    consumer.shutdown().unwrap();
    assert_eq!(
        calls.load(Ordering::SeqCst),
        0,
        "a listener was called with a lie"
    );
    eprintln!("{requests} requests, {} connections", broker.connections());
    requests
}

fn found(request: &Request, next: i64, body: Vec<u8>) -> Response {
    let _ = request;
    Response::body(body)
        .with("suggestWhichBrokerId", 0)
        .with("nextBeginOffset", next)
        .with("minOffset", 0)
        .with("maxOffset", 1_000)
}

#[test]
fn pulls_that_get_no_sensible_answer_are_repeated_by_intervals() {
    for (what, requests) in [
        ("garbage", consumer_at(|_| Answer::Raw(vec![0xff; 64]))),
        ("end", consumer_at(|_| Answer::Close)),
        (
            "cut",
            consumer_at(|request| Answer::Cut(30, found(request, 1, vec![1; 5_000]))),
        ),
        (
            "error",
            consumer_at(|_| Answer::Reply(Response::error(1, "no"))),
        ),
        ("no fields", consumer_at(|_| Answer::Reply(Response::ok()))),
        (
            "no records",
            consumer_at(|request| Answer::Reply(found(request, 1, vec![7; 5_000]))),
        ),
        (
            "back",
            consumer_at(|request| Answer::Reply(found(request, -5, Vec::new()))),
        ),
    ] {
        assert!(
            requests < 400,
            "{what}: {requests} requests in three seconds"
        );
    }
}
