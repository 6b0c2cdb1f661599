//! What the machine does without a broker: below that no broker's latency can come.

use super::recorder::{Recorder, Window};
use crate::bench::result::Latency;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a message.
const BYTES: usize = 8;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Latencies of an echo over loopback, from the intended send time: 8 bytes go to a thread that
/// sends them back, `rate` times a second, for `seconds`, one at least.
///
/// # Errors
/// Those of the sockets.
pub fn floor(rate: u32, seconds: u32) -> io::Result<Latency> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    for socket in [&here, &there] {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
    }
    let echo = thread::spawn(move || {
        let mut bytes = [0; BYTES];
        // It ends with the connection.
        while there.read_exact(&mut bytes).is_ok() && there.write_all(&bytes).is_ok() {}
    });
    let mut recorder = Recorder::new(Window {
        from: 0,
        until: u64::MAX,
    });
    let mut bytes = [0; BYTES];
    let began = Instant::now();
    for n in 0..rate * seconds {
        let at = Duration::from_secs(1) * n / rate;
        thread::sleep(at.saturating_sub(began.elapsed()));
        here.write_all(&bytes)?;
        here.read_exact(&mut bytes)?;
        let took = began.elapsed().saturating_sub(at);
        recorder.latency_of(at.as_nanos() as u64, took.as_nanos() as u64);
    }
    drop(here);
    let _ = echo.join();
    Ok(recorder.latency().expect("one at least"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_timed_from_when_it_was_due() {
        let found = floor(200, 1).expect("loopback");
        assert_eq!(found.count, 200);
        assert!(found.p50_us > 0 && found.p50_us <= found.p99_us);
        assert!(found.p99_us <= found.p999_us && found.p999_us <= found.max_us);
        assert!(u128::from(found.max_us) < ANSWER_MAX.as_micros());
    }
}
