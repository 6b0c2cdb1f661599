//! Who reads the answers: a lone sender himself, else the client's thread. The hand-over
//! between them loses nothing and holds nobody up.

use std::time::{Duration, Instant};

use futures_lite::future::{block_on, poll_once};
use ringmq::client::Message;

use crate::common::{shared, topic, unique};
use crate::support::{producer, stored};

/// Rounds of a lone sender, then a crowd, then a lone sender again.
const ROUNDS: usize = 40;

/// Sends of a lone sender in a row: enough that he reads his answers himself.
const ALONE: usize = 15;

/// A send that waited for somebody to find that it has no reader took longer.
const LONGEST: Duration = Duration::from_secs(2);

#[test]
fn lone_senders_and_crowds_take_turns() {
    let server = shared();
    let name = unique("Turns");
    topic(&mut server.connect(), &name, 4);
    let producer = producer(server.nameserver(), &unique("turns"));
    let message = |text: String| Message::new(&*name, text);
    let send = |text: String| {
        let began = Instant::now();
        producer.send(message(text)).unwrap();
        let took = began.elapsed();
        assert!(took < LONGEST, "a send took {took:?}");
    };
    let mut expected = 0;
    for round in 0..ROUNDS {
        for n in 0..ALONE {
            send(format!("alone {round} {n}"));
        }
        // A future that is dropped under way, then one that is awaited while others block.
        let mut dropped = Box::pin(producer.send_async(message(format!("dropped {round}"))));
        assert!(block_on(poll_once(&mut dropped)).is_none_or(|sent| sent.is_ok()));
        drop(dropped);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let send = &send;
                scope.spawn(move || (0..4).for_each(|n| send(format!("{round} {thread} {n}"))));
            }
            let futures: Vec<_> = (0..20)
                .map(|n| producer.send_async(message(format!("async {round} {n}"))))
                .collect();
            send(format!("between {round}"));
            for future in futures {
                block_on(future).unwrap();
            }
        });
        expected += ALONE + 3 * 4 + 20 + 1;
    }
    producer.shutdown().unwrap();
    let records = stored(&mut server.connect(), &name, 4);
    let is_dropped = |body: &[u8]| body.starts_with(b"dropped");
    let kept = records.iter().filter(|record| !is_dropped(&record.body));
    assert_eq!(kept.count(), expected);
}
