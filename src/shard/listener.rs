//! Listening and accepting.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use glommio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};

use super::conn::Conn;
use super::executor::{sleep, spawn};
use super::reader::Reader;
use super::{Service, Shard};

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
        let socket = Socket::new(
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
    spawn(async move { sweeper.sweep().await });
    let reader = Rc::new(Reader::new(shard, service));
    // SAFETY: the descriptor is a listening socket that is given away here.
    let listener = unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) };
    spawn(async move { reader.accept(listener).await });
}

impl<S: Service> Reader<S> {
    async fn accept(self: Rc<Self>, listener: TcpListener) {
        let mut refused: u64 = 0;
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
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
            let Ok(peer) = stream.peer_addr() else {
                self.shard.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            let reader = self.clone();
            let mut stream = stream;
            spawn(async move {
                let _ = stream.set_nodelay(true);
                let conn = Conn::new(peer, stream.as_raw_fd());
                let id = reader.shard.conns.borrow_mut().insert(conn);
                reader.connection(id, &mut stream).await;
                // First of all, as a task that still writes has a copy of the descriptor.
                reader.shard.close(id);
                reader.shard.conns.borrow_mut().remove(id);
                drop(stream);
                reader.shard.open.fetch_sub(1, Ordering::Relaxed);
                reader.service.closed(id);
            });
        }
    }
}
