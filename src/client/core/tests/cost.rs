//! What a send costs in the core. To be run with optimisation:
//! `cargo test --profile quick --lib -- --ignored --nocapture what_a_send_costs`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use super::world::PRODUCER;
use crate::client::core::Core;
use crate::client::core::io::{Command, Input, Now, Output, SendMode, Ticket};
use crate::client::core::producer::prepare::{SendOptions, prepare};
use crate::client::core::producer::unique_key::UniqueKeys;
use crate::client::message::Message;
use crate::client::settings::{ClientSettings, ProducerSettings};
use crate::wire::command::{Request, Response};
use crate::wire::frame::{self, Serialize, Split};
use crate::wire::header::{Header, Scratch};
use crate::wire::send_request::{SendRequest, SendTemplate};

const ROUNDS: usize = 4_000;
const BATCH: usize = 64;
const BODY: &[u8] = &[7; 256];

/// Answers all that was asked, as a broker does.
fn answers(frames: &[u8], out: &mut Vec<u8>) {
    let mut rest = frames;
    let mut scratch = Scratch::default();
    while let Ok(Split::Frame(frame, used)) = frame::split(rest) {
        rest = &rest[used..];
        let header = Header::decode(&frame, &mut scratch).unwrap();
        let asked = Request::from_header(&frame, &header);
        let mut answer = Response::ok()
            .with("msgId", "7F00000100002A9F00000000000004D2")
            .with("queueId", asked.get("e").unwrap_or("0"))
            .with("queueOffset", 12_345)
            .with("MSG_REGION", "DefaultRegion")
            .with("TRACE_ON", true);
        if asked.fixed.code == 105 {
            answer = Response::body(
                r#"{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":"a:1"}}],
                "queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"writeQueueNums":8}]}"#,
            );
        }
        answer.encode(out, Serialize::Json, asked.fixed.opaque);
    }
}

#[test]
#[ignore = "a measurement, not a check"]
fn what_a_send_costs() {
    let now = Now {
        at: 1_000,
        wall: 1_700_000_000_000,
    };
    let settings = ClientSettings::with_name_servers("ns:1");
    let mut core = Core::with_seed(settings, now, 1).unwrap();
    let settings = Arc::new(ProducerSettings::new("group"));
    let keys = UniqueKeys::new([10, 0, 0, 1].into(), 1, 1);
    let topic: Arc<str> = "topic".into();
    let options = || SendOptions {
        queue: None,
        mode: SendMode::Async,
        began: now.at,
        timeout_ms: None,
        wall_ms: now.wall,
    };
    let message = || Message::new(topic.clone(), bytes::Bytes::from_static(BODY)).tag("tag");
    let send = || prepare(message(), &settings, &keys, options()).unwrap();
    let mut out = Vec::new();
    let start = Command::StartProducer {
        ticket: Ticket(0),
        producer: PRODUCER,
        settings: settings.clone(),
    };
    core.handle(now, Input::Command(start), &mut out);

    let mut spent = [0u128; 4];
    let mut done = 0;
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    for round in 0..ROUNDS {
        let began = Instant::now();
        let sends: Vec<_> = (0..BATCH).map(|_| send()).collect();
        spent[0] += began.elapsed().as_nanos();
        let began = Instant::now();
        for send in sends {
            let send = Command::Send {
                ticket: Ticket(1),
                producer: PRODUCER,
                send,
            };
            core.handle(now, Input::Command(send), &mut out);
        }
        spent[1] += began.elapsed().as_nanos();
        loop {
            let mut wrote = Vec::new();
            for output in out.drain(..) {
                match output {
                    Output::Connect { peer, .. } => wrote.push((peer, true)),
                    Output::Write { peer } => wrote.push((peer, false)),
                    Output::Done { .. } => done += 1,
                    _ => {}
                }
            }
            if wrote.is_empty() {
                break;
            }
            for (peer, connect) in wrote {
                if connect {
                    core.handle(now, Input::Connected { peer }, &mut out);
                    continue;
                }
                frames.clear();
                core.take_frames(peer, &mut frames);
                bytes.clear();
                answers(&frames, &mut bytes);
                let began = Instant::now();
                assert_eq!(core.received(now, peer, &bytes, &mut out), bytes.len());
                spent[2] += began.elapsed().as_nanos();
            }
        }
        let _ = round;
    }
    assert_eq!(done, ROUNDS * BATCH + 1);
    let template = SendTemplate::new("group", "topic", "TBW102", 4);
    let one = send();
    let began = Instant::now();
    for round in 0..ROUNDS {
        frames.clear();
        for opaque in 0..BATCH {
            template.encode(
                &mut frames,
                &SendRequest {
                    opaque: opaque as i32,
                    one_way: false,
                    queue_id: 3,
                    sys_flag: 0,
                    born_timestamp: now.wall + round as i64,
                    flag: 0,
                    properties: &one.properties,
                    unique_key: one.key(),
                    reconsume: None,
                    batch: false,
                    broker_name: "a",
                    body: &one.body,
                },
            );
        }
        black_box(&frames);
    }
    spent[3] = began.elapsed().as_nanos();
    let each = spent.map(|ns| ns / (ROUNDS * BATCH) as u128);
    println!(
        "ns a send: prepare {}, core's send {} (of it the frame {}), core's answer {}",
        each[0], each[1], each[3], each[2]
    );
}
