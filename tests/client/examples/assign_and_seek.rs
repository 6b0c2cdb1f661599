use ringmq::client::{
    ClientSettings, NO_SUBSCRIPTIONS, PullConsumer, PullConsumerSettings, Result, SeekTo,
};
use std::time::Duration;

pub fn assign_and_seek(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let settings = PullConsumerSettings {
        auto_commit: false,
        ..PullConsumerSettings::new("replay")
    };
    let consumer = PullConsumer::start(&client, settings, NO_SUBSCRIPTIONS)?;
    let queues = consumer.fetch_queues("orders").wait()?.to_vec();
    consumer.assign(queues.clone()).wait()?;
    for queue in queues {
        consumer.seek(queue, SeekTo::Begin).wait()?;
    }
    if let Some(message) = consumer.poll(Duration::from_secs(60))?.first() {
        println!("{} {}", message.queue, message.queue_offset);
        // What is committed is the offset of the next one.
        let next = (message.queue.clone(), message.queue_offset + 1);
        consumer.commit_offsets(vec![next]).wait()?;
    }
    consumer.shutdown()
}
