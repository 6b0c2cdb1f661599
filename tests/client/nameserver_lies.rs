//! Nameservers that lie.

use std::time::Duration;

use ringmq::client::{
    Batch, ClientSettings, Message, NameServers, Producer, ProducerSettings, PushConsumer,
    PushConsumerSettings,
};
use ringmq::wire::command::Response;

use crate::Costs;
use crate::impostor::{Answer, Impostor, route, stored};
use crate::support::{client, timed};

/// A send and a consumer, which both have to do with this nameserver; the error of the send.
fn lied_to(nameserver: &Impostor) -> String {
    let _costs = Costs::count();
    let settings = ClientSettings {
        poll_name_server_interval_ms: 100,
        api_timeout_ms: 500,
        ..client(nameserver.address)
    };
    let of_producer = ProducerSettings {
        send_timeout_ms: 1_000,
        ..ProducerSettings::new("lied-to")
    };
    let consumer = PushConsumer::start(
        &settings,
        PushConsumerSettings::new("lied-to"),
        [("Lies", "*")],
        |_: &Batch| (),
    );
    let producer = Producer::start(&settings, of_producer).expect("a producer");
    let (sent, took) = timed(|| producer.send(Message::new("Lies", "x")));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let error = sent.expect_err("there is no broker").to_string();
    std::thread::sleep(Duration::from_secs(2));
    // It goes on asking, by its intervals.
    let requests = nameserver.requests();
    assert!(requests < 400, "{requests} requests in three seconds");
    let connections = nameserver.connections();
    assert!(
        connections < 200,
        "{connections} connections in three seconds"
    );
    if let Ok(consumer) = consumer {
        let _ = consumer.shutdown();
    }
    assert!(!error.contains('\n'), "{error:?}");
    eprintln!("{error}");
    error
}

#[track_caller]
fn lied_to_with(route: Vec<u8>, words: &[&str]) {
    let nameserver = Impostor::nameserver(move || route.clone());
    let error = lied_to(&nameserver);
    for word in words {
        assert!(error.contains(word), "{error}: no word of {word}");
    }
}

#[test]
fn a_route_without_an_address() {
    lied_to_with(route("broker-a", "", 4), &["broker-a"]);
    lied_to_with(route("broker-a", "nowhere", 4), &["broker-a", "nowhere"]);
}

#[test]
fn a_route_to_port_0() {
    lied_to_with(route("broker-a", "127.0.0.1:0", 4), &["broker-a", "port 0"]);
    lied_to_with(
        route("broker-a", "127.0.0.1:70000", 4),
        &["broker-a", "70000"],
    );
}

#[test]
fn a_route_with_a_line_break_in_a_name() {
    lied_to_with(route("broker\n-a", "127.0.0.1:1", 4), &["broker\\n-a"]);
    lied_to_with(route("broker-a", "127.0.0.1\r\n:1", 4), &["\\r\\n"]);
}

#[test]
fn a_route_with_ten_thousand_queues() {
    lied_to_with(route("broker-a", "127.0.0.1:1", 10_000), &["10000"]);
    lied_to_with(route("broker-a", "127.0.0.1:1", i32::MAX), &["2147483647"]);
    lied_to_with(route("broker-a", "127.0.0.1:1", -4), &["-4"]);
}

#[test]
fn a_route_that_is_none() {
    lied_to_with(b"{\"brokerDatas\":[{]}".to_vec(), &[]);
    lied_to_with(Vec::new(), &[]);
    lied_to_with(b"{}".to_vec(), &[]);
    lied_to_with(vec![b'['; 1_000_000], &[]);
}

#[test]
fn a_nameserver_that_knows_nothing_and_one_that_fails() {
    for code in [17, 1, 2, -7, i32::MAX] {
        let remark = "a remark of\nits own";
        let answer = move || Answer::Reply(Response::error(code, remark));
        let nameserver = Impostor::new(move |_| answer());
        lied_to(&nameserver);
    }
}

#[test]
fn a_nameserver_that_answers_garbage_nothing_or_ends_the_connection() {
    let talker = |bytes| Impostor::talker(bytes);
    for nameserver in [
        talker(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        talker(b"\x00\x00\x00\x05\x09\x00\x00\x00\x00"),
        talker(b"\xff\xff\xff\xff"),
        Impostor::new(|_| Answer::Silence),
        Impostor::new(|_| Answer::Close),
        Impostor::new(|_| Answer::Cut(9, Response::body(vec![b'x'; 4096]))),
    ] {
        let error = lied_to(&nameserver);
        let address = nameserver.address.to_string();
        assert!(error.contains(&address), "{error}: no word of {address}");
    }
}

#[test]
fn one_good_nameserver_is_enough() {
    let _costs = Costs::count();
    let broker = Impostor::new(|request| Answer::Reply(stored(request)));
    let good = Impostor::leading_to(broker.address, 4);
    let bad = [
        Impostor::talker(b"SSH-2.0-OpenSSH\r\n"),
        Impostor::new(|_| Answer::Close),
        Impostor::nameserver(|| route("broker-a", "127.0.0.1:0", 4)),
    ];
    let mut addresses: Vec<String> = bad.iter().map(|bad| bad.address.to_string()).collect();
    addresses.push("127.0.0.1:1".to_owned());
    addresses.push(good.address.to_string());
    let settings = ClientSettings {
        api_timeout_ms: 500,
        ..ClientSettings::with_name_servers(&addresses.join(";"))
    };
    let producer = Producer::start(&settings, ProducerSettings::new("g")).unwrap();
    let (mut errors, mut stored) = (Vec::new(), 0);
    for _ in 0..10 {
        match producer.send(Message::new("T", "x")) {
            Ok(_) => stored += 1,
            Err(error) => errors.push(error),
        }
    }
    assert!(stored >= 5, "{errors:?}");
    assert_eq!(
        producer
            .send(Message::new("T", "x"))
            .unwrap()
            .queue
            .broker_name,
        "broker-a".into()
    );
}

#[test]
fn a_broker_that_is_not_there_costs_an_error_and_no_cpu() {
    let _costs = Costs::count();
    let nameserver = Impostor::leading_to("127.0.0.1:1".parse().unwrap(), 4);
    let settings = client(nameserver.address);
    let consumer = PushConsumer::start(
        &settings,
        PushConsumerSettings::new("gone"),
        [("Gone", "*")],
        |_: &Batch| (),
    );
    let producer = Producer::start(&settings, ProducerSettings::new("gone")).unwrap();
    let error = producer.send(Message::new("Gone", "x")).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    assert!(error.is_retryable());
    std::thread::sleep(Duration::from_secs(2));
    if let Ok(consumer) = consumer {
        let _ = consumer.shutdown();
    }
}

#[test]
fn no_nameserver_at_all_is_told_at_once() {
    let _costs = Costs::count();
    let settings = ClientSettings::with_name_servers("no.such.host.invalid:9876");
    let producer = Producer::start(&settings, ProducerSettings::new("g")).unwrap();
    let error = producer
        .send(Message::new("T", "x"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no.such.host.invalid:9876"), "{error}");
    let refused = ClientSettings::with_name_servers("127.0.0.1:0");
    let error = Producer::start(&refused, ProducerSettings::new("g"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("127.0.0.1:0"), "{error}");
}

#[test]
fn an_address_server_tells_where_nameservers_are() {
    let _costs = Costs::count();
    let broker = Impostor::new(|request| Answer::Reply(stored(request)));
    let nameserver = Impostor::leading_to(broker.address, 4);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n{:99}",
        nameserver.address.to_string()
    );
    let server = Impostor::talker(answer.leak().as_bytes());
    let settings = ClientSettings {
        name_servers: NameServers::AddressServer(format!(
            "http://{}/rocketmq/nsaddr",
            server.address
        )),
        ..ClientSettings::default()
    };
    let producer = Producer::start(&settings, ProducerSettings::new("g")).unwrap();
    producer.send(Message::new("T", "x")).unwrap();

    let gone = ClientSettings {
        name_servers: NameServers::AddressServer("http://127.0.0.1:1/".to_owned()),
        ..ClientSettings::default()
    };
    let producer = Producer::start(&gone, ProducerSettings::new("g")).unwrap();
    assert!(producer.send(Message::new("T", "x")).is_err());
}
