//! Host names: asked for on a thread of their own, as a name server may not answer for long.

use std::net::{SocketAddr, ToSocketAddrs};

/// Addresses of one name that are tried, at most.
const ADDRESSES_MAX: usize = 16;

/// The addresses that `host:port` or `[ipv6]:port` names, in the order to try them.
///
/// # Errors
/// Text with why there are none.
pub(super) async fn resolve(address: &str) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return usable(vec![address]);
    }
    let (found_in, found) = flume::bounded(1);
    let name = address.to_owned();
    std::thread::Builder::new()
        .name("ringmq-resolve".to_owned())
        .spawn(move || {
            let found = name.to_socket_addrs();
            let found = found.map(|all| all.take(ADDRESSES_MAX).collect::<Vec<_>>());
            let _ = found_in.send(found);
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    match found.recv_async().await {
        Ok(Ok(found)) => usable(found),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("its resolution was given up".to_owned()),
    }
}

fn usable(mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    if found.is_empty() {
        return Err("the name has no address".to_owned());
    }
    found.retain(|address| address.port() != 0);
    if found.is_empty() {
        return Err("port 0 cannot be connected to".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    #[test]
    fn addresses_and_names_become_addresses_and_nonsense_an_error() {
        let one = |address| block_on(resolve(address));
        assert_eq!(
            one("127.0.0.1:80").unwrap(),
            ["127.0.0.1:80".parse().unwrap()]
        );
        assert_eq!(one("[::1]:80").unwrap(), ["[::1]:80".parse().unwrap()]);
        assert!(!one("localhost:80").unwrap().is_empty());
        for bad in [
            "",
            "a b:1",
            "localhost",
            "localhost:99999",
            "no.such.host.invalid:1",
        ] {
            assert!(one(bad).is_err(), "{bad:?}");
        }
        assert!(one("127.0.0.1:0").unwrap_err().contains("port 0"));
    }
}
