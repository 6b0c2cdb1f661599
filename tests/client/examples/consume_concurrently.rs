use ringmq::client::{ClientSettings, PushConsumer, PushConsumerSettings, Result};
use std::sync::mpsc;
use std::time::Duration;

pub fn consume_concurrently(name_servers: &str) -> Result<()> {
    let (done, first) = mpsc::channel();
    let client = ClientSettings::with_name_servers(name_servers);
    let consumer = PushConsumer::start(
        &client,
        PushConsumerSettings::new("billing"),
        [("orders", "paid || refunded")],
        move |batch| {
            for message in &batch.messages {
                println!("{}: {} bytes", message.queue, message.body().len());
            }
            let _ = done.send(());
        },
    )?;
    // The listener has threads of its own. Here its first message is all that is waited for.
    first
        .recv_timeout(Duration::from_secs(60))
        .expect("a message within a minute");
    consumer.shutdown()
}
