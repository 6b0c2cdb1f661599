//! Single questions to nameservers, in plain blocking I/O.

use ringmq::wire::codes::request;
use ringmq::wire::command::Request;
use ringmq::wire::frame::{Split, split};
use ringmq::wire::header::{Header, Scratch};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether something accepts connections at a port of this machine.
pub fn accepts(port: u16) -> bool {
    TcpStream::connect_timeout(&local(port), PATIENCE).is_ok()
}

/// Whether the nameserver at a port of this machine knows a topic's route.
pub fn knows_route(nameserver_port: u16, topic: &str) -> bool {
    let question = Request::new(request::GET_ROUTEINFO_BY_TOPIC).with("topic", topic);
    code_of_answer(nameserver_port, &question).is_ok_and(|code| code == 0)
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn code_of_answer(port: u16, question: &Request) -> io::Result<i32> {
    let mut stream = TcpStream::connect_timeout(&local(port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut frame = Vec::new();
    question.encode(&mut frame);
    stream.write_all(&frame)?;
    let mut buffer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match split(&buffer) {
            Ok(Split::Frame(frame, _)) => {
                let mut scratch = Scratch::default();
                let header = Header::decode(&frame, &mut scratch);
                return header
                    .map(|header| header.fixed.code)
                    .map_err(|_| io::ErrorKind::InvalidData.into());
            }
            Ok(_) => {}
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => buffer.extend_from_slice(&chunk[..read]),
        }
    }
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
    match code_of_answer(broker_port, &question) {
        Ok(0) => Ok(()),
        Ok(code) => Err(format!("topic {topic} is refused with code {code}")),
        Err(error) => Err(format!("topic {topic} cannot be made: {error}")),
    }
}
