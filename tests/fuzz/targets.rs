//! What is thrown at the wire's parsers, and what must hold whatever comes.

use std::hint::black_box;

use ringmq::wire::body::heartbeat::{CheckClientBody, HeartbeatData};
use ringmq::wire::body::json::{self, MessageQueue};
use ringmq::wire::body::lock::LockBatchBody;
use ringmq::wire::body::offset::{ConsumerOffsets, DelayOffsets};
use ringmq::wire::body::register::RegisterBrokerBody;
use ringmq::wire::body::route::{ClusterInfo, KVTable, TopicRouteData};
use ringmq::wire::body::subscription_group::{SubscriptionGroupConfig, SubscriptionGroupWrapper};
use ringmq::wire::body::topic::{DataVersion, TopicConfig, TopicConfigWrapper};
use ringmq::wire::command::{Request, Response};
use ringmq::wire::frame::{self, Frame, Split};
use ringmq::wire::header::{Header, Scratch};
use ringmq::wire::ids::parse_offset_id;
use ringmq::wire::message::Record;
use ringmq::wire::names::{check_group, check_topic};
use ringmq::wire::pull_header::PullHeader;
use ringmq::wire::send_header::SendHeader;
use ringmq::wire::{batch, properties};

use super::mutate::Dice;
use super::run::Target;

const MIB: usize = 1 << 20;

pub const FRAME: Target = Target {
    name: "frame",
    corpus: &["frame"],
    prepare: Some,
    words: &[
        b"\"extFields\":{",
        b"\"code\":310",
        b"\"flag\":2",
        b"\"language\":\"GO\"",
        b"\\u0001",
        b"\\ud83d",
        b"\\\"",
        b"null",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"1e400",
        b"{\"a\":[{",
        b"\"m\":\"true\"",
        b"\"e\":\"-1\"",
        b"\"queueOffset\":\"",
        b",",
        b"}",
        b"{",
    ],
    repair: repair_frame,
    bytes_max: MIB,
    run: run_frame,
};

pub const RECORD: Target = Target {
    name: "record",
    corpus: &["record"],
    prepare: Some,
    words: &[
        b"\xDA\xA3\x20\xA7",
        b"\xDA\xA3\x20\xAB",
        b"\xCB\xD4\x31\x94",
        b"TAGS\x01",
        b"\x02KEYS\x01",
    ],
    repair: repair_record,
    bytes_max: 4096,
    run: run_record,
};

pub const BATCH: Target = Target {
    name: "batch",
    corpus: &["batch"],
    prepare: Some,
    words: &[b"\x00\x00\x00\x16", b"\x7F\xFF\xFF\xFF", b"TAGS\x01a\x02"],
    repair: |_, _| {},
    bytes_max: 4096,
    run: run_batch,
};

pub const JSON: Target = Target {
    name: "json",
    corpus: &["json"],
    prepare: Some,
    words: &[
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"{\"a\":",
        b"{{",
        b"[[[[",
        b"null",
        b"true",
        b"1e400",
        b"-1",
        b"9223372036854775807",
        b"9223372036854775808",
        b"0:1",
        b"'",
        b"\"",
        b"\\u00e9",
        b"\\x41",
        b"\\",
        b"\"\":{}",
        b"/*",
        b"NaN",
        b"\xFF",
        b"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"t\"}:",
        b"\"topicConfigTable\":{",
        b"\"offsetTable\":{",
        b"\"subscriptionDataSet\":[",
    ],
    repair: |_, _| {},
    bytes_max: 8 * MIB,
    run: run_json,
};

/// A compressed registration may inflate to 64 MiB; what is made of that is bounded too.
pub const REGISTER: Target = Target {
    name: "register",
    corpus: &["json"],
    prepare: compressed,
    words: &[
        b"\x78\x9c",
        b"\x00\x00\x00\x00\xff\xff",
        b"\x7f\xff\xff\xff",
    ],
    repair: repair_register,
    bytes_max: 256 * MIB,
    run: run_register,
};

// One signature for all targets.
#[allow(clippy::ptr_arg)]
fn repair_frame(input: &mut Vec<u8>, dice: &mut Dice) {
    if input.len() < 8 || dice.below(4) == 0 {
        return;
    }
    let length = (input.len() - 4) as u32;
    input[..4].copy_from_slice(&length.to_be_bytes());
    if dice.below(2) == 0 {
        // To the last brace: a header of JSON that ends where it should.
        let end = input
            .iter()
            .rposition(|&byte| byte == b'}')
            .map_or(8, |at| (at + 1).max(8));
        let mark = (end - 8) as u32 | u32::from(input[4] & 1) << 24;
        input[4..8].copy_from_slice(&mark.to_be_bytes());
    }
}

fn run_frame(input: &[u8]) {
    let mut scratch = Scratch::default();
    let mut rest = input;
    while let Ok(Split::Frame(frame, used)) = frame::split(rest) {
        assert!(used >= 8 && used <= rest.len());
        assert_eq!(used, 8 + frame.header.len() + frame.body.len());
        one_frame(&frame, &mut scratch);
        rest = &rest[used..];
    }
}

fn one_frame(frame: &Frame<'_>, scratch: &mut Scratch) {
    let Ok(header) = Header::decode(frame, scratch) else {
        return;
    };
    if let Ok(send) = SendHeader::parse(&header) {
        black_box(check_topic(send.topic).is_ok());
        black_box(properties::iter(send.properties).count());
        let mut out = Vec::new();
        properties::copy_except(&mut out, send.properties, &["TAGS", "DELAY"]);
        assert!(out.len() <= send.properties.len() + 1);
        assert!(properties::get(&out, "TAGS").is_none());
    }
    if let Ok(pull) = PullHeader::parse(&header) {
        black_box(check_group(pull.group).is_ok());
    }
    let request = Request::from_header(frame, &header);
    let response = Response::from_header(frame, &header);
    if let Some(id) = request.get("offsetMsgId") {
        black_box(parse_offset_id(id));
    }
    // What was read can be written, and is read again as the same, apart from
    // text that the other form of header has no room for.
    let fields: Vec<_> = request
        .ext()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    if fields
        .iter()
        .any(|(key, value)| key.len() > 0x7FFF || value.len() > 0x7FFF)
    {
        return;
    }
    let mut out = Vec::new();
    request.encode(&mut out);
    let Ok(Split::Frame(again, used)) = frame::split(&out) else {
        panic!("an encoded frame is none");
    };
    assert_eq!(used, out.len());
    let mut scratch = Scratch::default();
    let header = Header::decode(&again, &mut scratch).expect("an encoded header is none");
    let reread = Request::from_header(&again, &header);
    let refields: Vec<_> = reread
        .ext()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    assert_eq!(fields, refields);
    assert_eq!(request.fixed.code, reread.fixed.code);
    assert_eq!(request.fixed.opaque, reread.fixed.opaque);
    assert_eq!(request.body, reread.body);
    response.encode(&mut out, frame.serialize, request.fixed.opaque);
}

// One signature for all targets.
#[allow(clippy::ptr_arg)]
fn repair_record(input: &mut Vec<u8>, dice: &mut Dice) {
    if input.len() >= 8 && dice.below(4) > 0 {
        let len = (input.len() as u32).to_be_bytes();
        input[..4].copy_from_slice(&len);
        let magic = *dice.pick(&[0xDAA3_20A7_u32, 0xDAA3_20AB]);
        if dice.below(3) > 0 {
            input[4..8].copy_from_slice(&magic.to_be_bytes());
        }
    }
}

fn run_record(input: &[u8]) {
    let mut rest = input;
    while let Ok(record) = Record::parse(rest) {
        let len = record.bytes().len();
        assert!(len >= 91 && len <= rest.len());
        let parts = record.body().len() + record.topic().len() + record.properties().len();
        assert!(parts + 91 <= len);
        black_box((
            record.verify().is_ok(),
            record.born_host(),
            record.store_host(),
        ));
        black_box((
            record.queue_id(),
            record.queue_offset(),
            record.physical_offset(),
        ));
        black_box((
            record.sys_flag(),
            record.born_timestamp(),
            record.store_timestamp(),
        ));
        black_box((
            record.flag(),
            record.reconsume_times(),
            record.prepared_offset(),
        ));
        black_box(properties::iter(record.properties()).count());
        black_box(properties::get(record.properties(), "TAGS"));
        rest = &rest[len..];
    }
}

fn run_batch(input: &[u8]) {
    let mut used = 0;
    let mut whole = true;
    for item in batch::items(input) {
        match item {
            Ok(item) => used += 22 + item.body.len() + item.properties.len(),
            Err(_) => whole = false,
        }
    }
    assert!(used <= input.len());
    assert!(!whole || used == input.len());
}

fn run_json(input: &[u8]) {
    macro_rules! parse {
        ($($body:ty),+) => {
            $(black_box(json::parse::<$body>(input).is_ok());)+
        };
    }
    parse!(
        HeartbeatData,
        CheckClientBody,
        LockBatchBody,
        ConsumerOffsets,
        DelayOffsets,
        TopicRouteData,
        ClusterInfo,
        KVTable,
        SubscriptionGroupConfig,
        SubscriptionGroupWrapper,
        DataVersion,
        TopicConfig,
        TopicConfigWrapper,
        MessageQueue,
        Vec<MessageQueue>
    );
    for version in [0, 37, 479] {
        black_box(RegisterBrokerBody::decode(input, false, version).is_ok());
    }
    if let Ok(offsets) = json::parse::<ConsumerOffsets>(input) {
        let again: ConsumerOffsets =
            json::parse(&offsets.to_json()).expect("offsets are written as JSON");
        black_box(again);
    }
    if let Ok(route) = json::parse::<TopicRouteData>(input) {
        let text = json::encode(&route);
        assert!(json::parse::<TopicRouteData>(&text).is_ok());
    }
}

/// Half of the inputs are changed behind the compression: they are deflated anew.
fn repair_register(input: &mut Vec<u8>, dice: &mut Dice) {
    use std::io::{Read, Write};
    if dice.below(2) == 0 {
        return;
    }
    let mut plain = Vec::new();
    let reader = flate2::read::ZlibDecoder::new(&input[..]);
    if reader.take(1 << 20).read_to_end(&mut plain).is_err() {
        return;
    }
    let words: [&[u8]; 3] = [
        b"\x00\x00\x00\x00",
        b"{\"counter\":1}",
        b"T 8 8 6 SINGLE_TAG",
    ];
    super::mutate::mutate(&mut plain, &[], &words, dice);
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(&plain).unwrap();
    *input = out.finish().unwrap();
}

/// The compressed form of a registration that a broker sent as JSON.
fn compressed(input: Vec<u8>) -> Option<Vec<u8>> {
    let body = RegisterBrokerBody::decode(&input, false, 479).ok()?;
    Some(body.encode_compressed())
}

fn run_register(input: &[u8]) {
    for version in [36, 37, 400, 479] {
        if let Ok(body) = RegisterBrokerBody::decode(input, true, version) {
            let again = RegisterBrokerBody::decode(&body.encode(), false, 479);
            assert!(again.is_ok(), "what was read is not written as JSON");
        }
    }
}
