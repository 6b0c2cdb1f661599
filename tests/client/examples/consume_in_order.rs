use ringmq::client::{
    ClientSettings, ConsumeFromWhere, Listening, Message, Producer, ProducerSettings, PushConsumer,
    PushConsumerSettings, Result,
};
use std::sync::mpsc;
use std::time::Duration;

pub fn consume_in_order(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("bank"))?;
    // Entries of one account are in one queue.
    for entry in ["opened", "paid in", "closed"] {
        producer.send(Message::new("entries", entry).sharding_key("account-7"))?;
    }

    let mut settings = PushConsumerSettings::new("ledger");
    settings.listening = Listening::Orderly;
    settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
    let (ledger, entries) = mpsc::channel();
    let consumer = PushConsumer::start(&client, settings, [("entries", "*")], move |batch| {
        for message in &batch.messages {
            ledger.send(std::str::from_utf8(message.body())?.to_owned())?;
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    for expected in ["opened", "paid in", "closed"] {
        let entry = entries.recv_timeout(Duration::from_secs(60));
        assert_eq!(entry.expect("an entry within a minute"), expected);
    }
    consumer.shutdown()?;
    producer.shutdown()
}
