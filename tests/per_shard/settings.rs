//! Settings that do not fit, ports that are taken.

use std::net::TcpListener;
use std::time::Duration;

use crate::common::{Config, eventually};

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
