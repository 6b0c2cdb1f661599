//! Connections by address, and the frames that wait to be written to each.

use std::collections::HashMap;
use std::sync::Arc;

use super::OneWay;
use super::io::{Output, PeerId};

/// Frames that wait for one connection, bytes; at the bound a request is refused.
pub(super) const OUT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A buffer that grew beyond this for one burst is not kept, bytes.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// A connection by which nothing at all comes while a request waits for so long is given up,
/// ms.
const SILENT_MS: u64 = 3_000;
/// And so is one by which bytes come, but no whole frame for so long, ms: the largest frame
/// takes less at 2 MB/s.
const UNFRAMED_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Connecting,
    Open,
}

#[derive(Debug)]
struct Peer {
    epoch: u32,
    state: State,
    address: Arc<str>,
    out: Vec<u8>,
    /// `Write` was said, and nothing has been taken since.
    write_said: bool,
    /// Sends without an answer that are in `out`.
    one_way: Vec<OneWay>,
    used_at: u64,
    heard_at: u64,
    framed_at: u64,
}

/// All connections, being made or made.
#[derive(Debug, Default)]
pub(super) struct Peers {
    slots: Vec<Peer>,
    free: Vec<u32>,
    by_address: HashMap<Arc<str>, u32>,
    /// Sends without an answer that have been taken to be written since they were asked for.
    pub written: Vec<OneWay>,
}

/// What is left of a connection that has ended.
pub(super) struct Ended {
    pub address: Arc<str>,
    /// Whether it was ever there.
    pub was_open: bool,
    /// Sends without an answer that were not written.
    pub one_way: Vec<OneWay>,
}

impl Peers {
    /// The connection to an address; the second value says whether it is a new one.
    pub fn to(&mut self, address: &Arc<str>, now: u64, out: &mut Vec<Output>) -> (PeerId, bool) {
        if let Some(&slot) = self.by_address.get(address) {
            let peer = &self.slots[slot as usize];
            let epoch = peer.epoch;
            return (PeerId { slot, epoch }, false);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Peer {
                epoch: 0,
                state: State::Free,
                address: Arc::from(""),
                out: Vec::new(),
                write_said: false,
                one_way: Vec::new(),
                used_at: 0,
                heard_at: 0,
                framed_at: 0,
            });
            self.slots.len() as u32 - 1
        });
        let peer = &mut self.slots[slot as usize];
        peer.state = State::Connecting;
        peer.address = address.clone();
        peer.used_at = now;
        peer.heard_at = now;
        peer.framed_at = now;
        let id = PeerId {
            slot,
            epoch: peer.epoch,
        };
        self.by_address.insert(address.clone(), slot);
        out.push(Output::Connect {
            peer: id,
            address: address.clone(),
        });
        (id, true)
    }

    fn get(&self, id: PeerId) -> Option<&Peer> {
        let peer = self.slots.get(id.slot as usize)?;
        (peer.epoch == id.epoch && peer.state != State::Free).then_some(peer)
    }

    fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        let peer = self.slots.get_mut(id.slot as usize)?;
        (peer.epoch == id.epoch && peer.state != State::Free).then_some(peer)
    }

    /// Whether it is being made or made.
    pub fn is_live(&self, id: PeerId) -> bool {
        self.get(id).is_some()
    }

    /// Whether there is a connection to the address.
    pub fn open_to(&self, address: &str) -> Option<PeerId> {
        let &slot = self.by_address.get(address)?;
        let peer = &self.slots[slot as usize];
        let epoch = peer.epoch;
        (peer.state == State::Open).then_some(PeerId { slot, epoch })
    }

    /// Its address.
    pub fn address(&self, id: PeerId) -> Option<&Arc<str>> {
        self.get(id).map(|peer| &peer.address)
    }

    /// Bytes have come by it.
    pub fn heard(&mut self, id: PeerId, now: u64) -> bool {
        let peer = self.get_mut(id);
        peer.map(|peer| (peer.heard_at, peer.used_at) = (now, now))
            .is_some()
    }

    /// A whole frame has come by it.
    pub fn framed(&mut self, id: PeerId, now: u64) {
        if let Some(peer) = self.get_mut(id) {
            peer.framed_at = now;
        }
    }

    /// Whether a request that was sent at `sent_at` has waited in vain: nothing at all came
    /// since, or what came makes no frame.
    pub fn is_dead(&self, id: PeerId, sent_at: u64, now: u64) -> bool {
        let Some(peer) = self.get(id) else {
            return false;
        };
        let waited = now.saturating_sub(sent_at) >= SILENT_MS && peer.framed_at <= sent_at;
        let unframed = now.saturating_sub(peer.framed_at) >= UNFRAMED_MS;
        waited && (peer.heard_at <= sent_at || unframed)
    }

    /// The buffer for a frame, unless too much waits already; [`Peers::said`] follows.
    pub fn buffer(&mut self, id: PeerId) -> Option<&mut Vec<u8>> {
        let peer = self.get_mut(id)?;
        (peer.out.len() < OUT_BYTES_MAX).then_some(&mut peer.out)
    }

    /// A frame is in the buffer.
    pub fn said(&mut self, id: PeerId, now: u64, out: &mut Vec<Output>) {
        let Some(peer) = self.get_mut(id) else {
            return;
        };
        peer.used_at = now;
        if peer.state == State::Open && !peer.write_said {
            peer.write_said = true;
            out.push(Output::Write { peer: id });
        }
    }

    /// The last frame of the buffer has no answer: somebody waits for it to be taken.
    pub fn one_way(&mut self, id: PeerId, who: OneWay) {
        if let Some(peer) = self.get_mut(id) {
            peer.one_way.push(who);
        }
    }

    /// The connection is there.
    pub fn connected(&mut self, id: PeerId, now: u64, out: &mut Vec<Output>) {
        let Some(peer) = self.get_mut(id) else {
            return;
        };
        peer.state = State::Open;
        peer.heard_at = now;
        if !peer.out.is_empty() {
            self.said(id, now, out);
        }
    }

    /// Moves the frames that wait to the end of `into`.
    pub fn take_frames(&mut self, id: PeerId, into: &mut Vec<u8>) {
        let Some(peer) = self.get_mut(id) else {
            return;
        };
        peer.write_said = false;
        if into.is_empty() {
            std::mem::swap(&mut peer.out, into);
        } else {
            into.append(&mut peer.out);
        }
        if peer.out.capacity() > KEPT_BYTES_MAX {
            peer.out = Vec::new();
        }
        let mut written = std::mem::take(&mut peer.one_way);
        self.written.append(&mut written);
    }

    /// The connection has ended, or is to be given up; what is left of it.
    pub fn end(&mut self, id: PeerId) -> Option<Ended> {
        let peer = self.get_mut(id)?;
        let ended = Ended {
            address: std::mem::replace(&mut peer.address, Arc::from("")),
            was_open: peer.state == State::Open,
            one_way: std::mem::take(&mut peer.one_way),
        };
        peer.state = State::Free;
        peer.epoch = peer.epoch.wrapping_add(1);
        peer.out = Vec::new();
        peer.write_said = false;
        self.by_address.remove(&ended.address);
        self.free.push(id.slot);
        Some(ended)
    }

    /// Connections that were not used since `before`.
    pub fn idle(&self, before: u64) -> Vec<PeerId> {
        let peers = self.slots.iter().enumerate();
        let idle = peers.filter(|(_, peer)| peer.state == State::Open && peer.used_at < before);
        idle.map(|(slot, peer)| PeerId {
            slot: slot as u32,
            epoch: peer.epoch,
        })
        .collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::core::io::Ticket;

    const WHO: OneWay = OneWay::Invoke(Ticket(1));

    #[test]
    fn write_is_said_once_until_frames_are_taken() {
        let (mut peers, mut out) = (Peers::default(), Vec::new());
        let address = Arc::from("h:1");
        let (peer, new) = peers.to(&address, 0, &mut out);
        assert!(new && matches!(out[..], [Output::Connect { .. }]));
        assert_eq!(peers.to(&address, 0, &mut out), (peer, false));
        out.clear();
        peers.buffer(peer).unwrap().push(1);
        peers.said(peer, 0, &mut out);
        assert!(out.is_empty(), "not connected yet");
        peers.connected(peer, 0, &mut out);
        peers.buffer(peer).unwrap().push(2);
        peers.said(peer, 0, &mut out);
        assert!(matches!(out[..], [Output::Write { .. }]));
        let mut frames = vec![];
        peers.one_way(peer, WHO);
        peers.take_frames(peer, &mut frames);
        assert_eq!((frames, peers.written.len()), (vec![1, 2], 1));
        peers.buffer(peer).unwrap().push(3);
        peers.said(peer, 0, &mut out);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn what_comes_for_an_ended_connection_is_ignored() {
        let (mut peers, mut out) = (Peers::default(), Vec::new());
        let (first, _) = peers.to(&Arc::from("h:1"), 0, &mut out);
        peers.one_way(first, WHO);
        assert_eq!(peers.end(first).unwrap().one_way, [WHO]);
        assert!(peers.end(first).is_none());
        let (second, new) = peers.to(&Arc::from("h:1"), 0, &mut out);
        assert!(new && second.slot == first.slot && second != first);
        assert!(!peers.heard(first, 1) && peers.buffer(first).is_none());
        let mut frames = vec![];
        peers.take_frames(first, &mut frames);
        assert!(frames.is_empty());
    }
}
