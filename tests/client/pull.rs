//! Pull consumers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringmq::client::hooks::FaultHook;
use ringmq::client::{
    ClientSettings, ConsumeFromWhere, Error, ErrorKind, Message, MessageModel, MessageQueue,
    NO_SUBSCRIPTIONS, OffsetOf, PullConsumer, PullConsumerSettings, SeekTo, SendRequest,
};

use crate::common::{committed, shared, topic, unique};
use crate::support::{PATIENCE, body, client, producer};

fn settings(group: &str) -> PullConsumerSettings {
    let mut settings = PullConsumerSettings::new(group);
    settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
    settings
}

/// Polls until so many messages have come.
fn poll_many(consumer: &PullConsumer, count: usize) -> Vec<String> {
    let (mut all, until) = (Vec::new(), Instant::now() + PATIENCE);
    while all.len() < count {
        assert!(
            Instant::now() < until,
            "{} of {count} within {PATIENCE:?}",
            all.len()
        );
        let messages = consumer.poll(Duration::from_millis(500)).unwrap();
        all.extend(messages.iter().map(body));
    }
    all
}

#[test]
fn a_subscriber_polls_what_there_is_and_commits_it() {
    let server = shared();
    let (name, group) = (unique("Pull"), unique("pull"));
    let mut plain = server.connect();
    topic(&mut plain, &name, 2);
    let producer = producer(server.nameserver(), &unique("pull-p"));
    for n in 0..50 {
        producer.send(Message::new(&*name, format!("{n}"))).unwrap();
    }
    let client = client(server.nameserver());
    let consumer = PullConsumer::start(&client, settings(&group), [(&*name, "*")]).unwrap();
    let mut all = poll_many(&consumer, 50);
    all.sort_by_key(|text| text.parse::<u32>().unwrap());
    let expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    assert_eq!(all, expected);
    let (none, took) = crate::support::timed(|| consumer.poll(Duration::from_millis(300)).unwrap());
    assert!(none.is_empty());
    assert!(
        (Duration::from_millis(250)..Duration::from_secs(5)).contains(&took),
        "{took:?}"
    );
    consumer.commit().wait().unwrap();
    let offset = |queue, plain: &mut _| committed(plain, &group, &name, queue).int("offset");
    assert_eq!(offset(0, &mut plain) + offset(1, &mut plain), 50);
    consumer.shutdown().unwrap();
    assert!(consumer.poll(Duration::from_millis(10)).is_err());

    // Another member goes on behind what was committed.
    producer.send(Message::new(&*name, "50")).unwrap();
    let next = PullConsumer::start(&client, settings(&group), [(&*name, "*")]).unwrap();
    assert_eq!(poll_many(&next, 1), ["50"]);
}

#[test]
fn a_poll_that_waits_ends_with_the_first_message() {
    let server = shared();
    let (name, group) = (unique("Wait"), unique("wait"));
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("wait-p"));
    let client = client(server.nameserver());
    let consumer = PullConsumer::start(&client, settings(&group), [(&*name, "*")]).unwrap();
    let waiting = consumer.clone();
    let thread = std::thread::spawn(move || waiting.poll(PATIENCE).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    producer.send(Message::new(&*name, "x")).unwrap();
    assert_eq!(
        thread.join().unwrap().iter().map(body).collect::<Vec<_>>(),
        ["x"]
    );
}

#[test]
fn queues_can_be_assigned_and_positions_chosen() {
    let server = shared();
    let (name, group) = (unique("Assign"), unique("assign"));
    topic(&mut server.connect(), &name, 2);
    let producer = producer(server.nameserver(), &unique("assign-p"));
    let consumer = PullConsumer::start(
        &client(server.nameserver()),
        settings(&group),
        NO_SUBSCRIPTIONS,
    )
    .unwrap();
    let queues = consumer.fetch_queues(&*name).wait().unwrap();
    assert_eq!(queues.len(), 2);
    for n in 0..20 {
        let queue: MessageQueue = queues[n % 2].clone();
        let request = SendRequest::from(Message::new(&*name, format!("{n}"))).queue(queue);
        producer.send(request).unwrap();
    }
    let (even, odd) = (queues[0].clone(), queues[1].clone());
    consumer.assign(vec![even.clone()]).wait().unwrap();
    assert_eq!(
        *consumer.assignment().wait().unwrap(),
        *std::slice::from_ref(&even)
    );
    let expected: Vec<String> = (0..10).map(|n| (2 * n).to_string()).collect();
    assert_eq!(poll_many(&consumer, 10), expected);

    assert_eq!(
        consumer.offset(odd.clone(), OffsetOf::Min).wait().unwrap(),
        Some(0)
    );
    assert_eq!(
        consumer.offset(odd.clone(), OffsetOf::Max).wait().unwrap(),
        Some(10)
    );
    assert_eq!(
        consumer
            .offset(odd.clone(), OffsetOf::Time(0))
            .wait()
            .unwrap(),
        Some(0)
    );
    assert_eq!(consumer.committed(odd.clone()).wait().unwrap(), None);

    consumer
        .seek(even.clone(), SeekTo::Offset(8))
        .wait()
        .unwrap();
    assert_eq!(poll_many(&consumer, 2), ["16", "18"]);
    consumer.seek(even.clone(), SeekTo::Begin).wait().unwrap();
    assert_eq!(poll_many(&consumer, 10), expected);
    assert!(
        consumer.seek(odd.clone(), SeekTo::Begin).wait().is_err(),
        "it is another's"
    );

    consumer
        .commit_offsets(vec![(even.clone(), 5)])
        .wait()
        .unwrap();
    assert_eq!(consumer.committed(even.clone()).wait().unwrap(), Some(5));

    consumer.pause(vec![even.clone()]).wait().unwrap();
    let request = SendRequest::from(Message::new(&*name, "paused")).queue(even.clone());
    producer.send(request).unwrap();
    assert!(
        consumer
            .poll(Duration::from_millis(300))
            .unwrap()
            .is_empty()
    );
    consumer.resume(vec![even]).wait().unwrap();
    assert_eq!(poll_many(&consumer, 1), ["paused"]);
}

#[test]
fn a_future_polls_as_well() {
    let server = shared();
    let (name, group) = (unique("Future"), unique("future"));
    topic(&mut server.connect(), &name, 1);
    let producer = producer(server.nameserver(), &unique("future-p"));
    let settings_of_client = client(server.nameserver());
    smol::block_on(async {
        let subscriptions = [(&*name, "*")];
        let consumer =
            PullConsumer::start_async(&settings_of_client, settings(&group), subscriptions)
                .await
                .unwrap();
        let waiting = consumer.poll_async(PATIENCE);
        producer
            .send_async(Message::new(&*name, "x"))
            .await
            .unwrap();
        assert_eq!(waiting.await.unwrap().len(), 1);
        consumer.shutdown_async().await.unwrap();
    });
}

#[derive(Default)]
struct Told(Mutex<Vec<Error>>);

impl FaultHook for Told {
    fn fault(&self, error: &Error) {
        self.0.lock().unwrap().push(error.clone());
    }
}

/// A disk that takes nothing is told by the commit, by the hook and by the stop.
#[test]
fn offsets_that_no_disk_takes_are_told_with_their_path() {
    let server = shared();
    let (name, group) = (unique("Disk"), unique("disk"));
    topic(&mut server.connect(), &name, 1);
    let folder = tempfile::tempdir().unwrap();
    let client = ClientSettings {
        instance_name: Some(unique("disk-instance")),
        client_ip: Some([127, 0, 0, 1].into()),
        offset_store_dir: Some(folder.path().to_owned()),
        ..client(server.nameserver())
    };
    let instance = client.instance_name.clone().unwrap();
    let place = folder.path().join(format!("127.0.0.1@{instance}/{group}"));
    // Where the new content would be written to there is a folder, which is no file.
    let fresh = place.join("offsets.tmp");
    std::fs::create_dir_all(&fresh).unwrap();
    let told = Arc::new(Told::default());
    let mut settings = settings(&group);
    settings.auto_commit = false;
    settings.poll_timeout_ms = 100;
    settings.setup.message_model = MessageModel::Broadcasting;
    settings.setup.fault_hooks.push(told.clone());
    let consumer = PullConsumer::start(&client, settings, [(&*name, "*")]).unwrap();
    let (none, took) = crate::support::timed(|| consumer.poll(None).unwrap());
    assert!(
        none.is_empty() && took >= Duration::from_millis(90),
        "{took:?}"
    );
    let producer = producer(server.nameserver(), &unique("disk-p"));
    let queue = producer.send(Message::new(&*name, "one")).unwrap().queue;
    assert_eq!(poll_many(&consumer, 1), ["one"]);

    let path = place.join("offsets.json").display().to_string();
    let names_it = |error: &Error| matches!(error.kind(), ErrorKind::OffsetFile { path: of, .. } if *of == path);
    let error = consumer.commit().wait().unwrap_err();
    assert!(names_it(&error), "{error}");
    assert!(told.0.lock().unwrap().iter().any(names_it));
    std::fs::remove_dir(&fresh).unwrap();
    consumer.commit().wait().unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains(":1}"));

    std::fs::create_dir_all(&fresh).unwrap();
    assert_eq!(consumer.committed(queue.clone()).wait(), Ok(Some(1)));
    producer.send(Message::new(&*name, "two")).unwrap();
    assert_eq!(poll_many(&consumer, 1), ["two"]);
    assert!(consumer.commit_offsets(vec![(queue, 2)]).wait().is_err());
    let error = consumer.shutdown().unwrap_err();
    assert!(names_it(&error), "{error}");
    assert!(consumer.poll(Duration::ZERO).is_err(), "it has stopped");
}
