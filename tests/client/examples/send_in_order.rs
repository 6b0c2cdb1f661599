use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};

pub fn send_in_order(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    for state in ["created", "paid", "shipped"] {
        let message = Message::new("orders", state).sharding_key("order-4711");
        let sent = producer.send(message)?;
        println!("{state} is in {} at {}", sent.queue, sent.queue_offset);
    }
    producer.shutdown()
}
