use ringmq::client::{
    ClientSettings, ConsumeFromWhere, Message, Producer, ProducerSettings, PushConsumer,
    PushConsumerSettings, Result,
};
use std::sync::mpsc;
use std::time::Duration;

pub fn produce_and_consume(name_servers: &str) -> Result<()> {
    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    producer.send(Message::new("orders", "one coffee").tag("new"))?;

    let mut settings = PushConsumerSettings::new("kitchen");
    // Otherwise a new group begins behind the messages that are there.
    settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
    let (kitchen, orders) = mpsc::channel();
    let consumer = PushConsumer::start(&client, settings, [("orders", "*")], move |batch| {
        for message in &batch.messages {
            let _ = kitchen.send(message.body().clone());
        }
    })?;
    let order = orders.recv_timeout(Duration::from_secs(60));
    println!("{:?}", order.expect("an order within a minute"));

    consumer.shutdown()?;
    producer.shutdown()
}
