//! Bounded amounts that sources share, so that one source can't use up what others need.
//!
//! A source may hold as much as it leaves free: alone half of the capacity, beside one other greedy source a third, and
//! `n` greedy sources leave an `n+1`th part for the next one (the dynamic thresholds of Choudhury and Hahne, "Dynamic
//! queue length thresholds for shared-memory packet switches", 1998). Nothing is reserved, no permit is revoked, and
//! taking one costs two atomic additions.
//!
//! # Sources with one address
//! API servers may reach a server through a NAT or a konnectivity agent, and then share an address with pods that flood
//! it. No rule by address helps there, and a fixed limit per address would hold all API servers to one client's share.
//! So the limit depends on what is free, and an API server's open connection stays open.
//!
//! A client with a certificate that the server asked for (`--client-ca`) counts by the certificate's name: whatever its
//! address, it shares nothing with clients that have none, since those get no further than the handshake. A flood from
//! many addresses at once is left to network rules and client certificates.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Peers without permits are dropped once there are twice as many as after the last time, and at least this many.
const PRUNE_ABOVE: usize = 64;

/// A bounded amount, and how much of it is in use.
#[derive(Debug, Default)]
pub struct Share {
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Share {
    /// Takes `amount` of `capacity` for the source that holds `held` of it already. Returns `None`, and counts it, if
    /// the source may not have that much.
    ///
    /// While nothing is in use any amount is granted: a capacity below the largest single request must not refuse that
    /// request for ever.
    pub fn take<'a>(&'a self, held: &'a AtomicUsize, amount: usize, capacity: usize) -> Option<Permit<'a>> {
        let used = self.used.fetch_add(amount, Ordering::Relaxed);
        let own = held.fetch_add(amount, Ordering::Relaxed);
        let permit = Permit { share: self, held, amount };
        let free = capacity.saturating_sub(used);
        let may = used == 0 || if own == 0 { amount <= free } else { own.saturating_add(amount) <= free };
        if may {
            return Some(permit);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// [`Self::take`] of one for what outlives the call that takes it: an open stream, an entry of a cache. `held` is the
    /// amount of `peer` that it counts in.
    pub fn take_owned<P>(
        self: &Arc<Self>,
        peer: &Arc<P>,
        held: fn(&P) -> &AtomicUsize,
        capacity: usize,
    ) -> Option<OwnedPermit<P>> {
        std::mem::forget(self.take(held(peer), 1, capacity)?);
        Some(OwnedPermit { share: self.clone(), peer: peer.clone(), held })
    }

    /// The amount in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The number of refusals.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// An amount in use; returned when dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    share: &'a Share,
    held: &'a AtomicUsize,
    amount: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.amount, Ordering::Relaxed);
        self.held.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// One in use, as [`Permit`]; it keeps alive what it counts in.
#[derive(Debug)]
pub struct OwnedPermit<P> {
    share: Arc<Share>,
    peer: Arc<P>,
    held: fn(&P) -> &AtomicUsize,
}

impl<P> Drop for OwnedPermit<P> {
    fn drop(&mut self) {
        drop(Permit { share: &self.share, held: (self.held)(&self.peer), amount: 1 });
    }
}

/// The identity by which a client's share is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The name in the certificate of the client.
    Certificate(String),
    /// The address of the client; of IPv6 the /64, in which a host chooses addresses freely.
    Address(IpAddr),
    /// The user of the client's token, or what stands for all users that one person can create.
    User(String),
}

impl Source {
    /// The source of a connection from `address`.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The amounts that one source holds.
#[derive(Debug, Default)]
pub struct Peer {
    /// Open connections.
    pub connections: AtomicUsize,
    /// TLS handshakes in flight.
    pub handshakes: AtomicUsize,
    /// Requests in flight.
    pub requests: AtomicUsize,
    /// Bytes of requests in flight.
    pub bytes: AtomicUsize,
}

/// Every source that holds a permit, with its amounts as a `P`.
#[derive(Debug, Default)]
pub struct Peers<P = Peer>(Mutex<PeerTable<P>>);

#[derive(Debug)]
struct PeerTable<P> {
    peers: HashMap<Source, Weak<P>>,
    after_last_prune: usize,
}

impl<P> Default for PeerTable<P> {
    fn default() -> Self {
        Self { peers: HashMap::new(), after_last_prune: 0 }
    }
}

impl<P: Default> Peers<P> {
    /// The amounts that `source` holds. The webhook calls it once per connection, never per request.
    pub fn of(&self, source: Source) -> Arc<P> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = known.peers.get(&source).and_then(Weak::upgrade) {
            return peer;
        }
        if known.peers.len() >= known.after_last_prune.saturating_mul(2).max(PRUNE_ABOVE) {
            known.peers.retain(|_, peer| peer.strong_count() > 0);
            known.after_last_prune = known.peers.len();
        }
        let peer = Arc::new(P::default());
        known.peers.insert(source, Arc::downgrade(&peer));
        peer
    }
}

/// The amounts that a server shares among its clients before it reads their requests.
#[derive(Debug, Default)]
pub struct Shares {
    /// Open connections, counted after the handshake where clients must show a certificate.
    pub connections: Share,
    /// TLS handshakes in flight.
    pub handshakes: Share,
    /// The sources that hold a permit.
    pub peers: Peers,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one by one until nothing is given.
    fn greedy<'a>(share: &'a Share, held: &'a AtomicUsize, capacity: usize) -> Vec<Permit<'a>> {
        std::iter::from_fn(|| share.take(held, 1, capacity)).collect()
    }

    #[test]
    fn single_source_gets_half_and_each_further_one_a_part() {
        let share = Share::default();
        let peers: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
        let held: Vec<_> = peers.iter().map(|peer| greedy(&share, peer, 1024)).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [512, 256, 128, 64, 32]);
        assert_eq!((share.used(), share.refused()), (992, 5));
        drop(held);
        assert_eq!((share.used(), peers[0].load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn sources_that_take_turns_get_equal_parts() {
        let (share, peers) = (Share::default(), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let mut held = Vec::new();
        loop {
            let before = held.len();
            held.extend(peers.iter().filter_map(|peer| share.take(peer, 1, 900)));
            if held.len() == before {
                break;
            }
        }
        assert_eq!(peers.each_ref().map(|peer| peer.load(Ordering::Relaxed)), [300, 300]);
    }

    #[test]
    fn request_above_the_capacity_is_granted_only_alone() {
        let (share, one, other) = (Share::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let large = share.take(&one, 100, 10).unwrap();
        assert!(share.take(&other, 1, 10).is_none(), "nothing is free");
        drop(large);
        let _some = share.take(&one, 4, 10).unwrap();
        assert!(share.take(&one, 4, 10).is_none(), "8 of 10, beside 6 free");
        assert!(share.take(&other, 6, 10).is_some(), "a source that holds nothing may have all that is free");
    }

    #[test]
    fn owned_permit_counts_as_another_and_is_returned_when_dropped() {
        let (share, peers) = (Arc::new(Share::default()), Peers::<Peer>::default());
        let peer = peers.of(Source::User("one".to_owned()));
        let mut held: Vec<_> =
            std::iter::from_fn(|| share.take_owned(&peer, |peer| &peer.requests, 8)).collect();
        assert_eq!((held.len(), share.used(), share.refused()), (4, 4, 1));
        assert!(share.take(&peer.requests, 1, 8).is_none(), "both kinds count in one amount");
        held.pop();
        assert_eq!((share.used(), peer.requests.load(Ordering::Relaxed)), (3, 3));
        assert!(share.take(&peer.requests, 1, 8).is_some());
    }

    #[test]
    fn addresses_of_one_host_are_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    }

    #[test]
    fn peers_without_permits_are_dropped() {
        let peers: Peers = Peers::default();
        let kept = peers.of(Source::Certificate("kept".to_owned()));
        for n in 0..1000_u32 {
            drop(peers.of(Source::Certificate(n.to_string())));
        }
        assert!(peers.0.lock().unwrap().peers.len() <= PRUNE_ABOVE);
        assert!(Arc::ptr_eq(&kept, &peers.of(Source::Certificate("kept".to_owned()))));
    }
}
