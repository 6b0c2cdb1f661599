//! The nameserver on its own shard: connections to [`Nameserver::handle`], the
//! clock, and the files.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::clock::Clock;
use super::config::Config;
use super::{CONFIG_FILE, KV_FILE, Nameserver};
use crate::shard::{
    ConnId, ConnLimits, Flow, LocalEvent, Service, Shard, ShardId, bind_alone, blocking, mesh,
    serve, sleep, spawn, spawn_executor,
};
use crate::store::{Disk, load_json, save_json};
use crate::wire::command::Request;
use crate::wire::frame::Frame;
use crate::wire::header::{Header, Scratch};

/// Time between two looks at brokers that have gone silent
/// (`scanNotActiveBrokerInterval`).
const EXPIRE: Duration = Duration::from_secs(5);

/// Time between two looks at changed files.
const SAVE: Duration = Duration::from_millis(200);

/// What the nameserver runs with.
#[derive(Clone, Debug)]
pub struct NameserverOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Folder of its files.
    pub dir: PathBuf,
    /// Processor to run on.
    pub cpu: usize,
    /// Most connections.
    pub connections_max: usize,
    /// Time without a byte after which a connection is closed.
    pub idle: Duration,
}

struct NameserverShard {
    shard: Rc<Shard<Infallible>>,
    state: RefCell<Nameserver>,
    scratch: RefCell<Scratch>,
    clock: Clock,
    dirty: Cell<bool>,
    room: LocalEvent,
}

/// Starts the nameserver; it runs until the process ends.
///
/// # Errors
/// Text with what is in the way.
pub fn start(options: NameserverOptions) -> Result<(), String> {
    let mut config = Config::default();
    let read = |path: PathBuf| match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    if let Some(text) = read(options.dir.join(CONFIG_FILE))? {
        config
            .load(text.as_bytes())
            .map_err(|error| format!("{}: {error}", options.dir.join(CONFIG_FILE).display()))?;
    }
    let mut state = Nameserver::new(config, 0);
    load_json(&Disk, &options.dir.join(KV_FILE), |bytes| {
        state.load_kv(bytes).map_err(|error| error.to_string())
    })?;
    let (ready_in, ready) = flume::bounded(1);
    spawn_executor("nameserver", options.cpu, move || async move {
        let listener = match bind_alone(options.listen).await {
            Ok(listener) => listener,
            Err(error) => {
                let _ = ready_in.send(Err(error.to_string()));
                return;
            }
        };
        let limits = ConnLimits {
            connections_max: options.connections_max,
            idle: options.idle,
            frame_time: Duration::from_secs(60),
            out_bytes_max: 32 * 1024 * 1024,
        };
        let mut lanes = mesh(1);
        let Some(lanes) = lanes.pop() else { return };
        let shard = Shard::new(ShardId(0), ShardId(0), &lanes, limits, Arc::default());
        let nameserver = Rc::new(NameserverShard {
            shard: shard.clone(),
            state: RefCell::new(state),
            scratch: RefCell::default(),
            clock: Clock::new(EXPIRE),
            dirty: Cell::new(false),
            room: LocalEvent::default(),
        });
        serve(&shard, &nameserver, listener);
        let _ = ready_in.send(Ok(()));
        let expiring = nameserver.clone();
        spawn("expiry of brokers", async move { expiring.expire().await });
        nameserver.save(&options.dir).await;
    })?;
    ready
        .recv()
        .unwrap_or_else(|_| Err("the nameserver's shard ended".to_owned()))
}

/// A connection as the nameserver's tables name it.
fn number(conn: ConnId) -> u64 {
    u64::from(conn.generation) << 32 | u64::from(conn.slot)
}

fn conn_of(number: u64) -> ConnId {
    ConnId {
        shard: ShardId(0),
        slot: number as u32,
        generation: (number >> 32) as u32,
    }
}

impl Service for NameserverShard {
    type Message = Infallible;

    fn frame(&self, conn: ConnId, frame: &Frame<'_>) -> Flow {
        let mut scratch = self.scratch.borrow_mut();
        let header = match Header::decode(frame, &mut scratch) {
            Ok(header) => header,
            Err(error) => {
                self.shard.count_bad(conn, &error);
                return Flow::Close;
            }
        };
        let Some(peer) = self.shard.peer(conn) else {
            return Flow::Close;
        };
        if header.fixed.is_response() {
            return Flow::Continue;
        }
        let request = Request::from_header(frame, &header);
        let response =
            self.state
                .borrow_mut()
                .handle(number(conn), peer, &request, self.clock.now_ms());
        self.dirty.set(true);
        if !header.fixed.is_one_way() {
            let opaque = header.fixed.opaque;
            self.shard.write(conn, |out| {
                response.encode(out.buffer(), frame.serialize, opaque);
            });
        }
        Flow::Continue
    }

    fn closed(&self, conn: ConnId) {
        self.state
            .borrow_mut()
            .connection_closed(number(conn), self.clock.now_ms());
    }

    fn message(&self, _: ShardId, message: Infallible) -> Option<Infallible> {
        match message {}
    }

    fn turn_end(&self) {}

    fn room(&self) -> &LocalEvent {
        &self.room
    }
}

impl NameserverShard {
    async fn expire(&self) {
        loop {
            sleep(EXPIRE).await;
            self.clock.look();
            let silent = self.state.borrow_mut().expire(self.clock.now_ms());
            for conn in silent {
                tracing::warn!(
                    peer = ?self.shard.peer(conn_of(conn)),
                    "a broker has gone silent: its routes are removed"
                );
                self.shard.close(conn_of(conn));
            }
        }
    }

    /// Writes files that changed, and makes them durable.
    async fn save(&self, dir: &Path) {
        loop {
            sleep(SAVE).await;
            if !self.dirty.replace(false) {
                continue;
            }
            let files = self.state.borrow_mut().take_dirty();
            for (name, bytes) in files {
                let path = dir.join(name);
                if let Err(error) = blocking(move || save_json(&Disk, &path, &bytes)).await {
                    tracing::error!(%error, "a file of the nameserver was not written");
                }
            }
        }
    }
}
