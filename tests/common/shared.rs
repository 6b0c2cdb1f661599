//! One server that the tests of a binary share, each with topics and groups of its own.

use std::ops::Deref;
use std::sync::OnceLock;

use super::{Config, Server};

static SERVER: OnceLock<Server> = OnceLock::new();

/// A test's hold on the shared server; shows its log where the test fails.
pub struct Shared(&'static Server);

/// The shared server: two shards, ASYNC_FLUSH.
pub fn shared() -> Shared {
    let server = SERVER.get_or_init(|| {
        extern "C" fn end() {
            if let Some(server) = SERVER.get() {
                server.clear();
            }
        }
        // SAFETY: `end` is an extern "C" function without arguments that does not unwind.
        unsafe { libc::atexit(end) };
        Config::server().shards(2).start()
    });
    Shared(server)
}

impl Deref for Shared {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.show_log();
        }
    }
}
