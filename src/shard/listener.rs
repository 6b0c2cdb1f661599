//! Listening and accepting.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Type};

use super::conn::Conn;
use super::reader::Reader;
use super::{Service, Shard, begin_turn_anew, sleep, spawn};
use crate::reactor::Socket;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Longest wait for an address that is taken: the kernel closes what a ring of a process
/// used a moment after the process has ended.
const FREED: Duration = Duration::from_secs(2);

/// Makes a listening socket. Several shards may bind the same address: the kernel
/// spreads connections over them. So may another process of this user, which gets a
/// part of them: see [`bind_alone`].
///
/// # Errors
/// Those of the socket, with the address in the text.
pub fn bind(address: SocketAddr) -> io::Result<StdListener> {
    listener(address, true)
}

/// Makes a listening socket on an address that nobody else listens on; waits up to
/// [`FREED`] for it.
///
/// # Errors
/// Those of the socket, with the address in the text.
pub async fn bind_alone(address: SocketAddr) -> io::Result<StdListener> {
    let began = Instant::now();
    loop {
        match listener(address, false) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < FREED => {
                sleep(Duration::from_millis(20)).await;
            }
            bound => return bound,
        }
    }
}

fn listener(address: SocketAddr, is_shared: bool) -> io::Result<StdListener> {
    let bind = || -> io::Result<StdListener> {
        let socket = socket2::Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking().cloexec(),
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(is_shared)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bind().map_err(|error| io::Error::new(error.kind(), format!("listen on {address}: {error}")))
}

/// Accepts connections and serves them until the shard stops.
pub fn serve<S: Service>(shard: &Rc<Shard<S::Message>>, service: &Rc<S>, listener: StdListener) {
    let sweeper = shard.clone();
    spawn("idle connections", async move { sweeper.sweep().await });
    let reader = Rc::new(Reader::new(shard, service));
    spawn("new connections", async move {
        reader.accept(&Socket::new(listener)).await
    });
    // What was done to get here held nobody up.
    begin_turn_anew();
    shard.figures_before.set(super::turn_figures());
}

impl<S: Service> Reader<S> {
    async fn accept(self: Rc<Self>, listener: &Socket) {
        let mut refused: u64 = 0;
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if self.shard.stopping.get() {
                continue;
            }
            let open = self.shard.open.fetch_add(1, Ordering::Relaxed);
            let limit = self.shard.limits.connections_max;
            if open >= limit {
                self.shard.open.fetch_sub(1, Ordering::Relaxed);
                refused += 1;
                if refused.is_power_of_two() {
                    tracing::warn!(limit, refused, "connection refused: too many are open");
                }
                continue;
            }
            let Some(peer) = peer else {
                self.shard.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            let reader = self.clone();
            spawn("frames of a connection", async move {
                // It fails where the peer is gone already.
                let _ = SockRef::from(&stream).set_tcp_nodelay(true);
                let socket = Socket::new(stream);
                let conn = Conn::new(peer, socket.clone());
                let id = reader.shard.conns.borrow_mut().insert(conn);
                reader.connection(id, &socket).await;
                // First of all, as a task that still writes keeps the descriptor.
                reader.shard.close(id);
                reader.shard.conns.borrow_mut().remove(id);
                drop(socket);
                reader.shard.open.fetch_sub(1, Ordering::Relaxed);
                reader.service.closed(id);
            });
        }
    }
}
