//! Single questions to the brokers and nameservers of a comparison.

use ringmq::client::remote::Remote;
use ringmq::wire::codes::{request, response};
use ringmq::wire::command::Request;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// Longest wait for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait for a new topic: a cold Apache broker tells its nameserver first.
const TOPIC: Duration = Duration::from_secs(20);

/// Whether something accepts connections at a port of this machine.
pub fn accepts(port: u16) -> bool {
    TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PATIENCE).is_ok()
}

/// Whether the nameserver at a port of this machine knows a topic's route.
pub fn knows_route(nameserver_port: u16, topic: &str) -> bool {
    let question = Request::new(request::GET_ROUTEINFO_BY_TOPIC).with("topic", topic);
    remote(nameserver_port, PATIENCE)
        .and_then(|mut remote| Ok(remote.call(question)?))
        .is_ok_and(|answer| answer.code == response::SUCCESS)
}

/// Makes a topic on the broker at a port of this machine.
///
/// # Errors
/// Text: it cannot be asked, or it refuses.
pub fn create_topic(broker_port: u16, topic: &str, queues: u32) -> Result<(), String> {
    let question = Request::new(request::UPDATE_AND_CREATE_TOPIC)
        .with("topic", topic)
        .with("defaultTopic", "TBW102")
        .with("readQueueNums", queues)
        .with("writeQueueNums", queues)
        .with("perm", 6)
        .with("topicFilterType", "SINGLE_TAG")
        .with("topicSysFlag", 0)
        .with("order", false);
    remote(broker_port, TOPIC)?.expect(question)?;
    Ok(())
}

fn remote(port: u16, timeout: Duration) -> Result<Remote, String> {
    Ok(Remote::connect(
        (Ipv4Addr::LOCALHOST, port).into(),
        timeout,
    )?)
}
