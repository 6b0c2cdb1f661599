//! The stop of a broker: nothing new, what is under way ended, everything on the device.

use std::rc::Rc;
use std::time::{Duration, Instant};

use flume::{Receiver, Sender};

use super::BrokerShard;
use super::message::{Answer, Ask};
use crate::shard::{blocking, receive, sleep};
use crate::store::StoreLayout;

/// Longest time that a stop waits for requests under way.
const DRAIN: Duration = Duration::from_secs(2);

/// Where a broker is asked to stop, and where it tells that it has.
pub(super) type StopEnds = (Receiver<()>, Sender<Result<(), String>>);

impl BrokerShard {
    /// Waits to be asked to stop, and stops the whole broker.
    pub(super) async fn stop_when_asked(self: Rc<Self>, ends: StopEnds) {
        let (stop, stopped) = ends;
        // A sender that is dropped asks for nothing.
        if receive(&stop).await.is_ok() {
            let _ = stopped.send(self.stop_all().await);
        }
    }

    /// Waits until nothing is under way on this shard, but not longer than `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        let began = Instant::now();
        let busy = || {
            self.deferred.get() > 0
                || self.forwarded.get() > 0
                || self.cold.get() > 0
                || !self.acks.borrow().is_empty()
                || self.delay.is_delivering()
        };
        while busy() && began.elapsed() < limit {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop_all(&self) -> Result<(), String> {
        self.unregister().await;
        let mut faults = Vec::new();
        // First every shard stops taking requests, then what is under way ends: a
        // second look catches what one shard sent another in between.
        self.ask_all(|| Ask::StopRequests).await;
        self.ask_all(|| Ask::Drained(DRAIN)).await;
        self.ask_all(|| Ask::Drained(DRAIN)).await;
        self.save_offsets(true).await;
        self.save_delays().await;
        self.save_tables().await;
        for answer in self.ask_all(|| Ask::Close).await {
            if let Answer::Refused(_, why) = answer {
                faults.push(why);
            }
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let abort = StoreLayout::new(&self.settings.borrow().store_path_root_dir).abort_file();
        blocking(move || std::fs::remove_file(abort))
            .await
            .map_err(|error| error.to_string())
    }
}
