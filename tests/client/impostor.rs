//! Servers that are no nameservers or brokers, or bad ones.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringmq::wire::body::route::{BrokerData, QueueData, TopicRouteData};
use ringmq::wire::command::{Request, Response};
use ringmq::wire::frame::{Split, split};
use ringmq::wire::header::{Header, Scratch};

/// What a request gets.
pub enum Answer {
    /// This, as the answer to it.
    Reply(Response),
    /// The same, after some milliseconds.
    Late(u64, Response),
    /// The same, so many times.
    Times(usize, Response),
    /// This, as the answer to the request of another number.
    ReplyTo(i32, Response),
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
    /// So much of the answer's frame, and the end.
    Cut(usize, Response),
    /// Nothing.
    Silence,
    /// The end of the connection.
    Close,
}

/// A server that does as it is told.
#[derive(Clone)]
pub struct Impostor {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Impostor {
    /// Listens for as long as the process lives; each connection is served by `serve`.
    fn listen(serve: impl Fn(TcpStream, &AtomicUsize) + Send + Sync + 'static) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let impostor = Impostor {
            address: listener.local_addr().expect("bound"),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (of, serve) = (impostor.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                of.connections.fetch_add(1, Ordering::SeqCst);
                let (requests, serve) = (of.requests.clone(), serve.clone());
                std::thread::spawn(move || serve(stream, &requests));
            }
        });
        impostor
    }

    /// One that answers requests.
    pub fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Impostor {
        Impostor::listen(move |stream, requests| serve(stream, requests, &answer))
    }

    /// One that writes bytes to whoever connects, and goes on until the other end closes.
    pub fn talker(bytes: &'static [u8]) -> Impostor {
        Impostor::listen(move |mut stream, _| {
            let mut chunk = [0; 4096];
            let _ = stream.write_all(bytes);
            while matches!(stream.read(&mut chunk), Ok(1..)) {}
        })
    }

    /// A nameserver with one route for every topic.
    pub fn nameserver(route: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Impostor {
        Impostor::new(move |request| match request.fixed.code {
            105 => Answer::Reply(Response::body(route())),
            _ => Answer::Reply(Response::ok()),
        })
    }

    /// A nameserver that leads to one broker with `queues` queues of every topic.
    pub fn leading_to(broker: SocketAddr, queues: i32) -> Impostor {
        let route = route("broker-a", &broker.to_string(), queues);
        Impostor::nameserver(move || route.clone())
    }

    /// Connections since the start.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Requests since the start.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A route to one broker, as JSON.
pub fn route(name: &str, address: &str, queues: i32) -> Vec<u8> {
    let route = TopicRouteData {
        broker_datas: vec![BrokerData {
            broker_addrs: BTreeMap::from([(0, address.to_owned())]),
            broker_name: name.to_owned(),
            cluster: "c".to_owned(),
            ..BrokerData::default()
        }],
        queue_datas: vec![QueueData {
            broker_name: name.to_owned(),
            perm: 6,
            read_queue_nums: queues,
            write_queue_nums: queues,
            topic_sys_flag: 0,
        }],
        ..TopicRouteData::default()
    };
    serde_json::to_vec(&route).expect("JSON")
}

/// What a broker answers to a send that it stored.
pub fn stored(request: &Request) -> Response {
    let queue = request.get("e").or(request.get("queueId")).unwrap_or("0");
    Response::ok()
        .with("msgId", "7F00000100002A9F0000000000000000")
        .with("queueId", queue)
        .with("queueOffset", 0)
}

fn serve(mut stream: TcpStream, requests: &AtomicUsize, answer: &impl Fn(&Request) -> Answer) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = stream.read(&mut chunk) else {
            return;
        };
        buffer.extend_from_slice(&chunk[..read]);
        let (mut out, mut used) = (Vec::new(), 0);
        while let Split::Frame(frame, length) = split(&buffer[used..]).expect("a frame") {
            let mut scratch = Scratch::default();
            let header = Header::decode(&frame, &mut scratch).expect("a header");
            let request = Request::from_header(&frame, &header);
            used += length;
            if header.fixed.is_response() {
                continue;
            }
            requests.fetch_add(1, Ordering::SeqCst);
            let opaque = request.fixed.opaque;
            let encode = |out: &mut Vec<u8>, response: &Response, opaque| {
                response.encode(out, request.serialize, opaque);
            };
            match answer(&request) {
                Answer::Reply(response) => encode(&mut out, &response, opaque),
                Answer::Late(ms, response) => {
                    let (mut later, mut bytes) = (stream.try_clone().unwrap(), Vec::new());
                    encode(&mut bytes, &response, opaque);
                    std::thread::spawn(move || {
                        std::thread::sleep(std::time::Duration::from_millis(ms));
                        let _ = later.write_all(&bytes);
                    });
                }
                Answer::Times(count, response) => {
                    (0..count).for_each(|_| encode(&mut out, &response, opaque));
                }
                Answer::ReplyTo(other, response) => encode(&mut out, &response, other),
                Answer::Raw(bytes) => out.extend_from_slice(&bytes),
                Answer::Cut(keep, response) => {
                    encode(&mut out, &response, opaque);
                    out.truncate(keep);
                    let _ = stream.write_all(&out);
                    return;
                }
                Answer::Silence => {}
                Answer::Close => return,
            }
        }
        buffer.drain(..used);
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}
