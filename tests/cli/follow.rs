//! `consume --follow` where brokers and members come and go.

use crate::command::{Watched, admin, run, start};
use crate::common::{Config, Send, Server, eventually, shared, unique};
use crate::groups::Member;
use std::os::fd::AsRawFd;
use std::process::Child;
use std::time::Duration;

/// What a pipe holds, nearly.
const PIPE_BYTES: libc::c_int = 60 * 1024;

fn made(server: &Server, queues: i32) -> String {
    let topic = unique("followed");
    admin(
        server,
        &format!("updateTopic -t {topic} -r {queues} -w {queues}"),
    )
    .good();
    topic
}

fn send(server: &Server, topic: &str, queue: i32, bodies: &[String]) {
    let mut client = server.connect();
    for body in bodies {
        client
            .call(Send::new(topic, body.clone()).queue(queue))
            .expect(0);
    }
}

fn numbered(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number}")).collect()
}

#[test]
fn a_broker_that_goes_takes_no_messages_of_another_with_it() {
    let nameserver = Config::nameserver().start();
    let broker = |name: &str| Config::broker(nameserver.nameserver()).set("brokerName", name);
    let live = broker("live").start();
    let mut gone = broker("gone").start();
    eventually("both are registered", Duration::from_secs(30), || {
        let list = run(&nameserver, "admin clusterList").stdout;
        list.contains("live") && list.contains("gone")
    });
    let topic = made(&nameserver, 2);
    let watched = Watched::of(start(&nameserver, &format!("consume {topic} --follow")));
    let mut wanted = [numbered("live-", 0..20), numbered("gone-", 0..20)].concat();
    send(&live, &topic, 0, &wanted[..20]);
    send(&gone, &topic, 1, &wanted[20..]);
    watched.shows("live-19");
    watched.shows("gone-19");

    gone.kill();
    for number in 20..80 {
        let body = numbered("live-", number..number + 1);
        send(&live, &topic, 1, &body);
        wanted.extend(body);
        std::thread::sleep(Duration::from_millis(50));
    }
    watched.shows("live-79");

    // Queues, and addresses of brokers, that were not there at the beginning.
    run(
        &nameserver,
        &format!("admin updateTopic -t {topic} -b live -r 4 -w 4"),
    )
    .good();
    let fresh = numbered("fresh-", 0..5);
    send(&live, &topic, 3, &fresh);
    watched.shows("fresh-4");
    let elsewhere = gone.config.clone().other_ports();
    gone = elsewhere.start();
    let back = numbered("back-", 0..5);
    send(&gone, &topic, 1, &back);
    watched.shows("back-4");

    wanted.extend([fresh, back].concat());
    let mut seen = watched.lines();
    wanted.sort();
    seen.sort();
    assert_eq!(seen, wanted, "{}", watched.errors());
    end(watched);
}

#[test]
fn a_broker_that_is_silent_at_the_start_is_read_when_it_answers() {
    let nameserver = Config::nameserver().start();
    let broker = |name: &str| Config::broker(nameserver.nameserver()).set("brokerName", name);
    let live = broker("live").start();
    let silent = broker("silent").start();
    eventually("both are registered", Duration::from_secs(30), || {
        let list = run(&nameserver, "admin clusterList").stdout;
        list.contains("live") && list.contains("silent")
    });
    let topic = made(&nameserver, 2);
    send(&silent, &topic, 1, &numbered("before-", 0..5));
    std::thread::sleep(Duration::from_millis(10));

    silent.signal(libc::SIGSTOP);
    let watched = Watched::of(start(
        &nameserver,
        &format!("consume {topic} --from last --follow"),
    ));
    watched.says("silent");
    send(&live, &topic, 0, &numbered("live-", 0..5));
    watched.shows("live-4");
    silent.signal(libc::SIGCONT);
    send(&silent, &topic, 1, &numbered("silent-", 0..5));
    watched.shows("silent-4");

    let mut seen = watched.lines();
    seen.sort();
    let wanted = [numbered("live-", 0..5), numbered("silent-", 0..5)].concat();
    assert_eq!(seen, wanted, "{}", watched.errors());
    end(watched);
}

/// Ends what follows, which is no failure.
fn end(mut watched: Watched) {
    watched.signal(libc::SIGINT);
    let code = watched.ended(Duration::from_secs(20));
    assert_eq!(code, Some(0), "{}", watched.errors());
}

/// A member that stands between a poll and its commit: its output is full.
fn stuck(server: &Server, topic: &str, group: &str) -> Child {
    let bodies: Vec<String> = (0..60)
        .map(|n| format!("{n:04}{}", "x".repeat(4_000)))
        .collect();
    send(server, topic, 0, &bodies);
    let child = start(server, &format!("consume {topic} --group {group} --follow"));
    let pipe = child.stdout.as_ref().expect("piped").as_raw_fd();
    eventually("its output is full", Duration::from_secs(60), || {
        let mut unread: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the place is one for a whole number.
        unsafe { libc::ioctl(pipe, libc::FIONREAD, &mut unread) };
        unread > PIPE_BYTES
    });
    child
}

#[test]
fn a_member_that_loses_a_queue_goes_on() {
    let server = shared();
    let (topic, group) = (made(&server, 1), unique("followers"));
    let child = stuck(&server, &topic, &group);
    let owners = || -> Vec<String> {
        let line = format!("consumerStatus -g {group} --output json");
        let queues = admin(&server, &line).json()["queues"].take();
        let queues = queues.as_array().expect("a list").iter();
        let of_topic = queues.filter(|queue| queue["topic"] == *topic);
        of_topic
            .map(|queue| queue["clientId"].to_string())
            .collect()
    };
    let before = owners();
    assert_eq!(before.len(), 1);
    // Its id is the first in order: the queue is its own now.
    let other = Member::join(&server, "!", &group, &topic);
    eventually("the queue is lost", Duration::from_secs(60), || {
        !owners().contains(&before[0])
    });
    let watched = Watched::of(child);
    watched.shows("0019");
    drop(other);
    send(&server, &topic, 0, &["the last".to_owned()]);
    watched.shows("the last");
    end(watched);
}

#[test]
fn a_member_outlives_its_broker() {
    let mut server = Config::server().start();
    let (topic, group) = (made(&server, 1), unique("followers"));
    let child = stuck(&server, &topic, &group);
    server.kill();
    let watched = Watched::of(child);
    watched.says("tried again");
    server.start_again();
    send(&server, &topic, 0, &["the last".to_owned()]);
    watched.shows("the last");
    end(watched);
}
