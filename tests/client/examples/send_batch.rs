use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};

pub fn send_batch(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    let drinks = ["one coffee", "two teas", "three waters"];
    let batch: Vec<_> = drinks.map(|drink| Message::new("orders", drink)).into();
    let sent = producer.send(batch)?;
    println!("the first is in {} at {}", sent.queue, sent.queue_offset);
    producer.shutdown()
}
