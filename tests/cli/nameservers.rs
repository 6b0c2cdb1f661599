use crate::command::{admin, ask, both};
use crate::common::{Config, free_port};

#[test]
fn keys_are_set_and_taken_away() {
    let server = Config::server().start();
    let set = both(
        &server,
        "updateKvConfig -s space -k key -v value",
        &["value"],
    );
    assert_eq!(set["value"], "value");
    admin(&server, "deleteKvConfig -s space -k key").refused(2, "which is \"value\"");
    admin(&server, "deleteKvConfig -s space -k key -y")
        .good()
        .shows(&["Value was"]);
    admin(&server, "deleteKvConfig -s space -k key -y").refused(3, "no key");
}

#[test]
fn nameservers_tell_and_change_their_settings() {
    let server = Config::server().start();
    let settings = both(&server, "getNamesrvConfig", &["NAMESERVER", "listenPort"]);
    let found = &settings["nameservers"][0];
    assert_eq!(found["address"], server.nameserver().to_string());
    assert!(found["settings"]["listenPort"].is_string());
    admin(&server, "getNamesrvConfig -k nosuch").refused(3, "nosuch");
    admin(&server, "updateNamesrvConfig -k listenPort -v 1").refused(4, "listenPort");
    let changed = admin(
        &server,
        "updateNamesrvConfig -k orderMessageEnable -v true --output json",
    );
    let changed = changed.good().json();
    assert_eq!(
        changed["nameservers"][0]["settings"]["orderMessageEnable"],
        "true"
    );
}

#[test]
fn a_broker_is_taken_out_of_writing_and_back() {
    let server = Config::server().set("brokerName", "broker-w").start();
    admin(&server, "updateTopic -t Writable").good();
    admin(&server, "wipeWritePerm -b broker-w").refused(2, "--yes");
    let wiped = both(&server, "wipeWritePerm -b broker-w -y", &["TOPICS CHANGED"]);
    assert!(wiped["nameservers"][0]["topics"].is_number());
    let route = admin(&server, "topicRoute -t Writable --output json").json();
    assert_eq!(route["brokers"][0]["perm"], "r");
    admin(&server, "sendMessage -t Writable -p x").refused(3, "addWritePerm");
    both(&server, "addWritePerm -b broker-w", &["broker-w"]);
    admin(&server, "sendMessage -t Writable -p x").good();
    admin(&server, "addWritePerm -b broker-x").refused(3, "did you mean broker-w?");
}

#[test]
fn the_next_nameserver_is_asked_and_absent_ones_are_named() {
    let server = Config::server().start();
    let absent = format!("127.0.0.1:{}", free_port());
    let both = format!("{absent};{}", server.nameserver());
    admin(&server, &format!("topicList -n {both}")).good();
    let address = absent.parse().unwrap();
    let found = ask(address, "admin topicList").refused(1, &absent);
    found.refused(1, "is it running");
    // A command for all nameservers is not done by some.
    admin(&server, &format!("updateKvConfig -n {both} -s a -k b -v c")).refused(1, &absent);
    admin(&server, "topicList -n nonsense").refused(2, "HOST:PORT");
}
