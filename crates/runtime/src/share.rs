//! Bounded amounts that sources share, so that one source can't use up what others need.
//!
//! A source may hold as much as it leaves free: alone half of the capacity, beside one other as greedy as itself a third,
//! and `n` greedy sources leave an `n+1`th part for the next one (the dynamic thresholds of Choudhury and Hahne, "Dynamic
//! queue length thresholds for shared-memory packet switches", 1998). Nothing is reserved, nothing is taken away from a
//! source again, and taking costs two atomic additions.
//!
//! # Who shares an address
//! API servers may reach a server through a NAT or a konnectivity agent, and then have one address together with pods that
//! flood it. No rule by address helps there, and a fixed limit per address would do harm: it would hold the API servers to
//! one client's share. So the limit depends on what is free, an API server's connection that is open stays open, and a
//! client that shows a certificate which the server asked for (`--client-ca`) counts by the certificate's name: whatever
//! its address, it shares nothing with clients that have none, since those get no further than the handshake.
//! A flood from many addresses at once is for the network's rules and for client certificates to stop.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Peers are looked through for those that are gone when there are twice as many as after the last look, and this many.
const PRUNE_AT: usize = 64;

/// A bounded amount, as far as it is used.
#[derive(Debug, Default)]
pub struct Share {
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Share {
    /// Takes `amount` of `capacity` for the source that holds `held` of it already. `None`, and counted, if that is more
    /// than the source may have. While nothing is
    /// used any amount is given: a capacity below the largest single request must not refuse that request for ever.
    pub fn take<'a>(&'a self, held: &'a AtomicUsize, amount: usize, capacity: usize) -> Option<Taken<'a>> {
        let used = self.used.fetch_add(amount, Ordering::Relaxed);
        let own = held.fetch_add(amount, Ordering::Relaxed);
        let taken = Taken { share: self, held, amount };
        let free = capacity.saturating_sub(used);
        let may = used == 0 || if own == 0 { amount <= free } else { own.saturating_add(amount) <= free };
        if may {
            return Some(taken);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// How much is used.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often nothing was given.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// What was taken, given back when dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    share: &'a Share,
    held: &'a AtomicUsize,
    amount: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.amount, Ordering::Relaxed);
        self.held.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// By what a client is told from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The name in the certificate that it showed.
    Certificate(String),
    /// Its address; of IPv6 the /64, within which a host chooses addresses as it likes.
    Address(IpAddr),
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

/// What one source holds of everything that is shared.
#[derive(Debug, Default)]
pub struct Peer {
    /// Open connections.
    pub connections: AtomicUsize,
    /// Handshakes under way.
    pub handshakes: AtomicUsize,
    /// Requests under way.
    pub requests: AtomicUsize,
    /// Bytes of requests under way.
    pub bytes: AtomicUsize,
}

/// Every source that holds something.
#[derive(Debug, Default)]
pub struct Peers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    peers: HashMap<Source, Weak<Peer>>,
    after_last_look: usize,
}

impl Peers {
    /// What `source` holds. Asked for once a connection, never for a request.
    pub fn of(&self, source: Source) -> Arc<Peer> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = known.peers.get(&source).and_then(Weak::upgrade) {
            return peer;
        }
        if known.peers.len() >= known.after_last_look.saturating_mul(2).max(PRUNE_AT) {
            known.peers.retain(|_, peer| peer.strong_count() > 0);
            known.after_last_look = known.peers.len();
        }
        let peer = Arc::new(Peer::default());
        known.peers.insert(source, Arc::downgrade(&peer));
        peer
    }
}

/// What a server shares out among its clients before it reads their requests.
#[derive(Debug, Default)]
pub struct Shares {
    /// Open connections, after their handshakes where clients must show a certificate.
    pub connections: Share,
    /// Handshakes under way.
    pub handshakes: Share,
    /// The sources that hold something.
    pub peers: Peers,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one by one until nothing is given.
    fn greedy<'a>(share: &'a Share, held: &'a AtomicUsize, capacity: usize) -> Vec<Taken<'a>> {
        std::iter::from_fn(|| share.take(held, 1, capacity)).collect()
    }

    #[test]
    fn a_source_alone_gets_half_and_every_next_one_finds_something() {
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
    fn sources_that_take_turns_get_the_same_and_leave_as_much() {
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
    fn a_request_larger_than_the_capacity_passes_alone_and_a_first_one_while_it_fits() {
        let (share, one, other) = (Share::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let large = share.take(&one, 100, 10).unwrap();
        assert!(share.take(&other, 1, 10).is_none(), "nothing is free");
        drop(large);
        let _some = share.take(&one, 4, 10).unwrap();
        assert!(share.take(&one, 4, 10).is_none(), "8 of 10, beside 6 free");
        assert!(share.take(&other, 6, 10).is_some(), "a source that holds nothing may have all that is free");
    }

    #[test]
    fn an_address_stands_for_its_host() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    }

    #[test]
    fn peers_that_are_gone_are_forgotten() {
        let peers = Peers::default();
        let kept = peers.of(Source::Certificate("kept".to_owned()));
        for n in 0..1000_u32 {
            drop(peers.of(Source::Certificate(n.to_string())));
        }
        assert!(peers.0.lock().unwrap().peers.len() <= PRUNE_AT);
        assert!(Arc::ptr_eq(&kept, &peers.of(Source::Certificate("kept".to_owned()))));
    }
}
