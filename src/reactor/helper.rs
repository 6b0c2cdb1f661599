//! A thread beside a shard's, for system calls that wait for the disk.

use std::io;

type Work = Box<dyn FnOnce() + Send>;

/// Ends when it is dropped and its work is done.
pub(super) struct Helper {
    work: flume::Sender<Work>,
}

impl Helper {
    /// Starts the thread. It may run wherever the calling one may: call it from one that is
    /// not pinned.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(name: &str) -> io::Result<Helper> {
        let (work_in, work) = flume::unbounded::<Work>();
        std::thread::Builder::new()
            .name(format!("{name}-files"))
            .spawn(move || work.iter().for_each(|work| work()))?;
        Ok(Helper { work: work_in })
    }

    /// Gives it something to do. The result comes on the channel.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> flume::Receiver<T> {
        let (result_in, result) = flume::bounded(1);
        let work = move || {
            // Nobody may be left to care.
            let _ = result_in.send(work());
        };
        self.work
            .send(Box::new(work))
            .expect("the thread is there as long as this");
        result
    }
}
