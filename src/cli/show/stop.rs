//! Signals that ask to stop.

use super::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at whether somebody has asked.
pub const LOOK: Duration = Duration::from_millis(50);

/// Whether somebody has asked to stop.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for SIGINT and SIGTERM. A second signal ends the process at once.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn on_signals() -> Result<Stop, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The order matters: the first signal finds the flag still down.
            let listened =
                signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
                    .and_then(|_| signal_hook::flag::register(signal, stop.clone()));
            listened.map_err(|error| Failure::failed(format!("signal {signal}: {error}")))?;
        }
        Ok(Stop(stop))
    }

    /// Whether it is so.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps so long, or until it is so; `false`: it is.
    pub fn sleep(&self, time: Duration) -> bool {
        let began = Instant::now();
        while !self.is_asked() && began.elapsed() < time {
            std::thread::sleep(LOOK.min(time));
        }
        !self.is_asked()
    }
}
