use ringmq::client::hooks::{SendContext, SendHook};
use ringmq::client::{ClientSettings, Message, Producer, ProducerSettings, Result, SendResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Default)]
struct Tries {
    good: AtomicU32,
    bad: AtomicU32,
}

impl SendHook for Tries {
    fn after_send(&self, context: &SendContext<'_>, result: Option<&Result<SendResult>>) {
        match result {
            Some(Err(error)) => {
                eprintln!("try {} at {}: {error}", context.tries, context.address);
                self.bad.fetch_add(1, Ordering::Relaxed)
            }
            _ => self.good.fetch_add(1, Ordering::Relaxed),
        };
    }
}

pub fn count_tries(name_servers: &str) -> Result<()> {
    let tries = Arc::new(Tries::default());
    let mut settings = ProducerSettings::new("shop");
    settings.send_hooks.push(tries.clone());

    let client = ClientSettings::with_name_servers(name_servers);
    let producer = Producer::start(&client, settings)?;
    producer.send(Message::new("orders", "one coffee"))?;
    producer.shutdown()?;
    assert_eq!(tries.good.load(Ordering::Relaxed), 1);
    Ok(())
}
