use ringmq::client::{ClientSettings, PullConsumer, PullConsumerSettings, Result};
use std::time::Duration;

pub fn pull(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let settings = PullConsumerSettings::new("audit");
    let consumer = PullConsumer::start(&client, settings, [("orders", "*")])?;
    for message in consumer.poll(Duration::from_secs(60))? {
        println!("{} {}", message.queue, message.queue_offset);
    }
    consumer.commit().wait()?;
    consumer.shutdown()
}
