use ringmq::client::{ClientSettings, Outcome, PushConsumer, PushConsumerSettings, Result};
use std::sync::mpsc;
use std::time::Duration;

pub fn retry_later(name_servers: &str) -> Result<()> {
    let (done, first) = mpsc::channel();
    let client = ClientSettings::with_name_servers(name_servers);
    let consumer = PushConsumer::start(
        &client,
        PushConsumerSettings::new("mailing"),
        [("mails", "*")],
        move |batch| {
            if batch.messages[0].reconsume_times == 0 {
                // Delay levels count from 1: this one is 1 s.
                return Outcome::ReconsumeLater { delay_level: 1 };
            }
            let _ = done.send(());
            Outcome::from(())
        },
    )?;
    first
        .recv_timeout(Duration::from_secs(60))
        .expect("a message within a minute");
    consumer.shutdown()
}
