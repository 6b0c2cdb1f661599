//! Settings that do not fit, ports that are taken.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::common::{Config, eventually, topic};
use ringmq::wire::command::Request;

const SECOND: Duration = Duration::from_secs(1);

fn refused(config: &Config, code: i32) -> String {
    let (got, log) = config.start_refused();
    assert_eq!(got, code, "{log}");
    log
}

#[test]
fn a_mode_that_is_none_is_refused() {
    let log = refused(&Config::server().set("routeMode", "both"), 2);
    assert!(
        log.contains("routeMode") && log.contains("single or perShard"),
        "{log}"
    );
}

#[test]
fn ports_that_do_not_exist_or_are_the_nameservers_are_refused() {
    let config = Config::per_shard(3);
    let log = refused(&config.clone().set("listenPort", 65_520), 1);
    assert!(
        log.contains("shard 2") && log.contains("at most 65515"),
        "{log}"
    );
    let log = refused(
        &config
            .set("listenPort", 20_000)
            .set("nameserverPort", 20_020),
        1,
    );
    assert!(
        log.contains("shard 2") && log.contains("nameserverPort"),
        "{log}"
    );
}

#[test]
fn a_name_that_leaves_no_room_for_its_number_is_refused() {
    let config = Config::per_shard(2).set("brokerName", "b".repeat(126));
    let log = refused(&config, 1);
    assert!(log.contains("brokerName is too long"), "{log}");
}

/// Another broker on the port would get a part of the connections without anyone seeing it.
#[test]
fn a_port_that_is_taken_is_named() {
    let config = Config::per_shard(2);
    let server = config.start();
    let taken = server.shard_address(1);
    assert_eq!(server.stop(), 0);
    let mut holder = TcpListener::bind(taken).ok();
    eventually("the port is free", SECOND * 2, || {
        holder = holder.take().or_else(|| TcpListener::bind(taken).ok());
        holder.is_some()
    });
    let log = refused(&config, 1);
    assert!(log.contains(&format!("listen on {taken}")), "{log}");
    drop(holder);
    // Of RingMQ as of any other program.
    let other = Config::server().set("listenPort", taken.port()).start();
    let log = refused(&config, 1);
    assert!(log.contains(&format!("listen on {taken}")), "{log}");
    assert_eq!(other.stop(), 0);
    assert_eq!(config.start().stop(), 0);
}

/// Starts it where it must refuse to, and sees that no shard serves meanwhile.
fn refused_before_anything_is_served(config: &Config) -> String {
    let server = config.launch_only();
    let mut frame = Vec::new();
    Request::new(28).encode(&mut frame);
    eventually("the end", SECOND * 20, || {
        // The port may take connections already, which then end with the process.
        if let Ok(mut stream) = TcpStream::connect(server.shard_address(0)) {
            stream.set_read_timeout(Some(SECOND * 10)).expect("set");
            let asked = stream.write_all(&frame);
            let answer = asked.and_then(|()| stream.read(&mut [0; 64]));
            assert!(matches!(answer, Ok(0) | Err(_)), "served: {answer:?}");
        }
        server.exited().is_some()
    });
    let code = server.exited().and_then(|status| status.code());
    let log = server.log();
    assert_eq!(code, Some(1), "{log}");
    assert!(!log.contains("broker registered"), "{log}");
    assert!(!log.contains("broker ready"), "{log}");
    log
}

#[test]
fn none_serves_where_one_cannot() {
    let config = Config::per_shard(2);
    let server = config.start();
    let taken = server.shard_address(1);
    topic(&mut server.connect_shard(1), "T", 1);
    assert_eq!(server.stop(), 0);
    let other = Config::server().set("listenPort", taken.port()).start();
    let log = refused_before_anything_is_served(&config);
    assert!(log.contains(&format!("listen on {taken}")), "{log}");
    // Both stores were open by then.
    for shard in 0..2 {
        assert!(log.contains(&format!("store open shard={shard}")), "{log}");
    }
    assert_eq!(other.stop(), 0);

    // A store that cannot be opened: a folder is where its file must be.
    let tail = config.store().join("shard-1/tail");
    let kept = config.store().join("kept");
    std::fs::rename(&tail, &kept).expect("a tail file");
    std::fs::create_dir(&tail).expect("a folder");
    let log = refused_before_anything_is_served(&config);
    assert!(log.contains("shard 1: "), "{log}");
    std::fs::remove_dir(&tail).expect("removed");
    std::fs::rename(&kept, &tail).expect("put back");
    assert_eq!(config.start().stop(), 0);
}

/// A host `broker-a-1` beside one `broker-a` that has two shards.
#[test]
fn two_brokers_of_one_name_are_told_of() {
    let server = Config::per_shard(2).start();
    let text = "do two brokers have one name";
    assert!(server.log_line(text).is_none());
    let same = Config::broker(server.nameserver())
        .set("brokerName", "broker-a-1")
        .start();
    let line = server.log_line(text).expect("a warning");
    assert!(line.contains("WARN"), "{line}");
    for address in [server.shard_address(1), same.address()] {
        assert!(line.contains(&address.to_string()), "{line}");
    }
}

#[test]
fn log_lines_say_which_broker_they_are_of() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr();
    let server = Config::broker(nobody.expect("an address"))
        .brokers(2)
        .start();
    eventually("both say so", SECOND * 5, || {
        let log = server.log();
        let mut complaints = log.lines().filter(|line| line.contains("cannot connect"));
        complaints
            .clone()
            .any(|line| line.ends_with("name=\"broker-a\""))
            && complaints.any(|line| line.ends_with("name=\"broker-a-1\""))
    });
    assert!(server.log_line("store open shard=1").is_some());
}
