use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};

pub fn send_later(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    // Consumers get it after 1 s.
    producer.send(Message::new("reminders", "the coffee is ready").delay_level(1))?;
    producer.shutdown()
}
