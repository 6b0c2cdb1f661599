//! Messages at and above the limits.

use crate::common::{
    Config, Pull, Send, Witness, batch_item, body, max_offset, shared, topic, unique,
};

const MIB: usize = 1024 * 1024;

#[test]
fn a_body_of_4_mib_is_stored_and_one_byte_more_is_not() {
    let server = Config::server().shards(2).start();
    let witness = Witness::start(&server);
    let mut client = server.connect();
    topic(&mut client, "Sizes", 2);
    for queue in 0..2 {
        let largest = body("largest", queue as u64, 4 * MIB);
        let reply = client
            .call(Send::new("Sizes", largest.clone()).queue(queue))
            .expect(0);
        assert_eq!(reply.int("queueOffset"), 0);
        let reply = client
            .call(Send::new("Sizes", vec![1; 4 * MIB + 1]).queue(queue))
            .expect(13);
        for number in ["4194304", "4194305"] {
            assert!(reply.remark.contains(number), "{}", reply.remark);
        }
        // The refused one took no offset.
        let reply = client
            .call(Send::new("Sizes", "small").queue(queue))
            .expect(0);
        assert_eq!(reply.int("queueOffset"), 1);
        // One message comes whatever its size.
        let records = client
            .call(Pull::new("Sizes", queue, 0))
            .expect(0)
            .records();
        assert_eq!(records.len(), 1);
        assert!(records[0].body == largest);
        assert_eq!(
            client
                .call(Pull::new("Sizes", queue, 1))
                .expect(0)
                .records()[0]
                .body,
            b"small"
        );
    }
    witness.end();
}

#[test]
fn the_limit_of_the_body_is_the_one_that_is_set() {
    let server = Config::server().set("maxMessageSize", 2048).start();
    let mut client = server.connect();
    topic(&mut client, "Limit", 1);
    client.call(Send::new("Limit", vec![1; 2048])).expect(0);
    let reply = client.call(Send::new("Limit", vec![1; 2049])).expect(13);
    assert!(
        reply.remark.contains("2048") && reply.remark.contains("2049"),
        "{}",
        reply.remark
    );
    // A batch is measured as it is stored, headers of its messages included.
    let many: Vec<[u8; 10]> = vec![[1; 10]; 30];
    let reply = client.call(Send::batch("Limit", &many)).expect(13);
    assert!(reply.remark.contains("2048"), "{}", reply.remark);
    client.call(Send::batch("Limit", &many[..10])).expect(0);
    assert_eq!(max_offset(&mut client, "Limit", 0), 11);
}

#[test]
fn properties_above_their_limit_are_refused() {
    let server = shared();
    let name = unique("Properties");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    for bytes in [32_768, 40_000, 100_000, 1_000_000] {
        let reply = client
            .call(Send::new(&name, "x").property("K", &"v".repeat(bytes)))
            .expect(13);
        assert!(reply.remark.contains("32767"), "{}", reply.remark);
    }
    // The broker's own properties count too.
    client
        .call(Send::new(&name, "x").property("K", &"v".repeat(32_760)))
        .expect(13);
    let reply = client
        .call(Send::new(&name, "x").property("K", &"v".repeat(32_000)))
        .expect(0);
    assert_eq!(reply.int("queueOffset"), 0);
    let record = client
        .call(Pull::new(&name, 0, 0))
        .expect(0)
        .records()
        .remove(0);
    assert_eq!(record.property("K").map(str::len), Some(32_000));
}

#[test]
fn an_empty_body_is_a_message() {
    let server = shared();
    let name = unique("Nothing");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    client.call(Send::new(&name, "").tag("T")).expect(0);
    client.call(Send::batch(&name, &["", ""])).expect(0);
    let records = client.call(Pull::new(&name, 0, 0)).expect(0).records();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.body.is_empty()));
    assert_eq!(records[0].property("TAGS"), Some("T"));
}

#[test]
fn a_batch_of_thousands_is_stored_whole_or_not_at_all() {
    let server = shared();
    let name = unique("Thousands");
    let mut client = server.connect();
    topic(&mut client, &name, 1);
    let bodies: Vec<Vec<u8>> = (0..5000).map(|n| body("b", n, 100)).collect();
    let reply = client.call(Send::batch(&name, &bodies)).expect(0);
    assert_eq!(reply.int("queueOffset"), 0);
    assert_eq!(reply.ext("msgId").split(',').count(), 5000);
    let mut send = Send::batch(&name, &["x"]);
    send.body = batch_item(&[1; 100], "").repeat(30_000);
    client.call(send).expect(13);
    assert_eq!(max_offset(&mut client, &name, 0), 5000);
    let mut next = 0;
    while next < 5000 {
        for record in client.call(Pull::new(&name, 0, next)).expect(0).records() {
            assert_eq!(record.queue_offset, next);
            assert_eq!(record.body, bodies[next as usize]);
            next += 1;
        }
    }
}
