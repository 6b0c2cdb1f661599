use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};

pub async fn send_async(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start_async(&client, ProducerSettings::new("shop")).await?;
    let sends: Vec<_> = (0..64)
        .map(|n| producer.send_async(Message::new("orders", format!("coffee {n}"))))
        .collect();
    for send in sends {
        send.await?;
    }
    producer.shutdown_async().await
}
