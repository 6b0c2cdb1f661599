use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};

pub fn send(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    let sent = producer.send(Message::new("orders", "one coffee").key("4711"))?;
    println!(
        "{} is in {} at {}",
        sent.message_id, sent.queue, sent.queue_offset
    );
    producer.shutdown()
}
