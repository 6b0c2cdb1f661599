use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};
use std::sync::mpsc;

pub fn send_with_callback(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    let (done, called) = mpsc::channel();
    producer.send_with(Message::new("orders", "one tea"), move |sent| {
        match sent {
            Ok(sent) => println!("stored at {}", sent.queue_offset),
            Err(error) if error.is_retryable() => eprintln!("again later: {error}"),
            Err(error) => eprintln!("never: {error}"),
        }
        let _ = done.send(());
    });
    // A shutdown waits for the send, but not for its callback.
    called.recv().expect("the callback is called");
    producer.shutdown()
}
