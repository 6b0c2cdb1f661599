//! What the machine does without a broker: below that no broker's latency can come.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a message.
const BYTES: usize = 8;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Latencies of an echo over loopback, from the intended send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    pub p50: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub max: Duration,
}

/// Sends 8 bytes to a thread that sends them back, `rate` times a second, for `seconds`.
///
/// # Errors
/// Those of the sockets.
pub fn floor(rate: u32, seconds: u32) -> io::Result<Floor> {
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
    let mut took = Vec::with_capacity((rate * seconds) as usize);
    let mut bytes = [0; BYTES];
    let began = Instant::now();
    for n in 0..rate * seconds {
        let due = began + Duration::from_secs(1) * n / rate;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        here.write_all(&bytes)?;
        here.read_exact(&mut bytes)?;
        took.push(due.elapsed());
    }
    drop(here);
    let _ = echo.join();
    took.sort_unstable();
    let at = |part: f64| took[((took.len() as f64 * part) as usize).min(took.len() - 1)];
    Ok(Floor {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: at(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_timed_from_when_it_was_due() {
        let found = floor(200, 1).expect("loopback");
        assert!(found.p50 > Duration::ZERO && found.p50 <= found.p99);
        assert!(found.p99 <= found.p999 && found.p999 <= found.max);
        assert!(found.max < ANSWER_MAX);
    }
}
