//! Servers that are no brokers, or bad ones.

use crate::common::{Pull, shared};
use ringmq::wire::command::{Request, Response};
use ringmq::wire::frame::{Split, split};
use ringmq::wire::header::{Header, Scratch};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// What one does with each connection.
type Serve = dyn Fn(TcpStream) + Send + Sync;

/// Listens for as long as the process lives.
pub fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    let serve: &'static Serve = Box::leak(Box::new(serve));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// What a request gets.
pub enum Answer {
    /// This, as the answer to it.
    Reply(Response),
    /// This, as the answer to the request of another number.
    ReplyTo(i32, Response),
    /// Nothing.
    Silence,
    /// The end of the connection.
    Close,
}

/// A broker that makes every topic and answers everything else by `answer`.
pub fn broker(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> SocketAddr {
    listen(move |mut stream| {
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
                let answer = match request.fixed.code {
                    17 | 215 => Answer::Reply(Response::ok()),
                    28 => Answer::Reply(Response::body(&b"{\"table\":{}}"[..])),
                    _ => answer(&request),
                };
                let (opaque, response) = match answer {
                    Answer::Reply(response) => (request.fixed.opaque, response),
                    Answer::ReplyTo(opaque, response) => (opaque, response),
                    Answer::Silence => continue,
                    Answer::Close => return,
                };
                response.encode(&mut out, request.serialize, opaque);
            }
            buffer.drain(..used);
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    })
}

/// A number of a request that must have it.
pub fn number(request: &Request, name: &str) -> i64 {
    let number = request.get(name).and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("no {name} in {request:?}"))
}

/// What the shared broker answers, also to sends that want no answer. It holds no pull.
pub fn forward(request: &Request) -> Response {
    let mut request = request.clone();
    request.fixed.flag = 0;
    if request.fixed.code == 11 {
        let topic = request.get("topic").expect("a topic");
        let (queue, offset) = (number(&request, "queueId"), number(&request, "queueOffset"));
        let pull = Pull::new(topic, queue as i32, offset);
        request = pull.max(number(&request, "maxMsgNums") as i32).into();
    }
    let answer = shared().connect().call(request);
    let mut response = Response::body(answer.body);
    response.code = answer.code;
    for name in ["offset", "queueOffset", "nextBeginOffset"] {
        if let Some(value) = answer.ext.get(name) {
            response = response.with(name, value);
        }
    }
    response
}
