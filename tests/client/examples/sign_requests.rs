use ringmq::client::hooks::RequestHook;
use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result};
use ringmq::wire::command::Request;
use std::sync::Arc;

struct Signer {
    access_key: String,
}

impl RequestHook for Signer {
    fn before_request(&self, _address: &str, request: &mut Request) {
        request.set("AccessKey", &self.access_key);
    }
}

pub fn sign_requests(name_servers: &str) -> Result<()> {
    let mut client = ClientSettings::with_name_servers(name_servers);
    let access_key = "shop-key".to_owned();
    client.request_hooks.push(Arc::new(Signer { access_key }));

    let producer = Producer::start(&client, ProducerSettings::new("shop"))?;
    producer.send(Message::new("orders", "one coffee"))?;
    producer.shutdown()
}
