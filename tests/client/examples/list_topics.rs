use ringmq::client::admin::{Admin, AdminError};
use std::time::Duration;

pub fn list_topics(name_servers: &str) -> Result<(), AdminError> {
    let mut admin = Admin::new(name_servers, Duration::from_secs(5))?;
    for topic in admin.topic_list()? {
        let route = admin.route(&topic)?;
        println!("{topic}: {} brokers", route.broker_datas.len());
    }
    Ok(())
}
