//! An address server: an HTTP server that tells where the nameservers are.
//!
//! Source of the rules: `DefaultTopAddressing`. One GET, an answer in plain text.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest time that the whole exchange takes.
const TIME_MAX: Duration = Duration::from_secs(3);

/// Largest answer with its header, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What the address server at `url` answers, e.g. `192.0.2.1:9876;192.0.2.2:9876`. Waits for
/// it: call it on a thread that may.
///
/// # Errors
/// Text with the URL and why there is no answer.
pub(super) fn fetch(url: &str) -> Result<String, String> {
    get(url).map_err(|why| format!("address server {url:?}: {why}"))
}

fn get(url: &str) -> Result<String, String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or("not a URL that begins with http://")?;
    if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("a URL has no spaces and no control characters".to_owned());
    }
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
    });
    let target = if has_port {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let until = Instant::now() + TIME_MAX;
    let text = |error: std::io::Error| error.to_string();
    let mut fault = "the name has no address".to_owned();
    for address in target.to_socket_addrs().map_err(text)? {
        let Some(left) = until.checked_duration_since(Instant::now()) else {
            break;
        };
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(stream) => return exchange(stream, host, path, until),
            Err(error) => fault = error.to_string(),
        }
    }
    Err(fault)
}

fn exchange(
    mut stream: TcpStream,
    host: &str,
    path: &str,
    until: Instant,
) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.set_write_timeout(Some(TIME_MAX)).map_err(text)?;
    // HTTP/1.0: the answer ends with the connection, and comes in one piece.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(body) = whole_body(&answer)? {
            return Ok(body);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("no answer in {} ms", TIME_MAX.as_millis()));
        }
        stream.set_read_timeout(Some(left)).map_err(text)?;
        match stream.read(&mut chunk) {
            Ok(0) => return body_at_end(&answer),
            Ok(read) => answer.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error.to_string()),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
}

/// Header and what has come of the body, once the header is whole.
fn parts(answer: &[u8]) -> Result<Option<(&str, &[u8])>, String> {
    let Some(end) = memchr::memmem::find(answer, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| "its header is not text")?;
    let status = head.lines().next().unwrap_or_default();
    let code = status.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with("HTTP/") || code != "200" {
        return Err(format!("it answers {status:?}"));
    }
    Ok(Some((head, &answer[end + 4..])))
}

/// The body, once as much is there as the header says.
fn whole_body(answer: &[u8]) -> Result<Option<String>, String> {
    let Some((head, body)) = parts(answer)? else {
        return Ok(None);
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("content-length");
        is_it.then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(length) if body.len() >= length => as_text(&body[..length]).map(Some),
        _ => Ok(None),
    }
}

/// The body of an answer that ends with its connection.
fn body_at_end(answer: &[u8]) -> Result<String, String> {
    match parts(answer)? {
        Some((head, body)) if !head.to_ascii_lowercase().contains("\ncontent-length:") => {
            as_text(body)
        }
        _ => Err("it closes the connection in mid-answer".to_owned()),
    }
}

fn as_text(body: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(body).map_err(|_| "its answer is not text")?;
    let text = text.trim();
    if text.is_empty() {
        return Err("it knows no nameserver: its answer is empty".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered(answer: &'static [u8]) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap();
            let _ = stream.write_all(answer);
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let result = fetch(&format!("http://127.0.0.1:{port}/rocketmq/nsaddr"));
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /rocketmq/nsaddr HTTP/1.0\r\n"),
            "{request}"
        );
        result
    }

    #[test]
    fn the_answer_is_the_body_in_either_form() {
        let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n127.0.0.1:9876 and more";
        assert_eq!(answered(sized).unwrap(), "127.0.0.1:9876");
        let open = b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\n 127.0.0.1:1;127.0.0.1:2\n";
        assert_eq!(answered(open).unwrap(), "127.0.0.1:1;127.0.0.1:2");
    }

    #[test]
    fn what_is_no_answer_is_an_error_that_names_the_server() {
        let bad: [&[u8]; 5] = [
            b"",
            b"HTTP/1.0 404 Not Found\r\n\r\nno",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            b"HTTP/1.0 200 OK\r\n\r\n  ",
        ];
        for answer in bad {
            let error = answered(answer).unwrap_err();
            assert!(error.contains("/rocketmq/nsaddr"), "{error}");
        }
        let too_long = Box::leak(vec![b'x'; ANSWER_BYTES_MAX + 10_000].into_boxed_slice());
        assert!(answered(too_long).unwrap_err().contains("more than"));
        for url in [
            "",
            "https://x/",
            "http://",
            "http://a b/",
            "http://x:99999/",
        ] {
            assert!(fetch(url).is_err(), "{url:?}");
        }
    }
}
