//! First-fit-decreasing, as Karpenter's provisioner packs pods: existing nodes first, then the new node with the fewest
//! pods, then one more new node. A new node keeps every instance type that still takes its pods; the launch takes the
//! cheapest.

use croft_simkit::Amounts;

/// An instance type. The list is in the order of prices.
#[derive(Clone, Debug)]
pub struct Kind {
    pub name: String,
    /// Micro-dollars per hour.
    pub price: i64,
    pub allocatable: Amounts,
}

/// A pod to place.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub requests: Amounts,
    /// It waits for a node; otherwise it would have to move.
    pub is_pending: bool,
}

/// A node with room.
#[derive(Clone, Debug)]
pub struct Bin {
    pub name: String,
    pub free: Amounts,
    pub is_ready: bool,
}

/// A node to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    requests: Amounts,
    pods: usize,
    /// Instance types that take its pods, as indices, cheapest first.
    pub kinds: Vec<usize>,
}

/// Where pods would be.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// Names of existing nodes that pending pods would be on.
    pub nominated: Vec<String>,
    pub new: Vec<NewNode>,
    /// A pod that would have to move fits nowhere, or only on a node that isn't Ready.
    pub strands: bool,
}

/// Places pods, the largest first: by CPU, then by memory.
pub fn place(mut items: Vec<Item>, mut bins: Vec<Bin>, kinds: &[Kind]) -> Placed {
    items.sort_by_key(|item| std::cmp::Reverse((item.requests[0], item.requests[1])));
    bins.sort_by(|a, b| (!a.is_ready, &a.name).cmp(&(!b.is_ready, &b.name)));
    let mut placed = Placed::default();
    for item in items {
        if let Some(bin) = bins.iter_mut().find(|bin| fits(item.requests, bin.free)) {
            bin.free = minus(bin.free, item.requests);
            if item.is_pending {
                placed.nominated.push(bin.name.clone());
            } else {
                placed.strands |= !bin.is_ready;
            }
        } else if !placed.open(item.requests, kinds) {
            placed.strands |= !item.is_pending;
        }
    }
    placed
}

impl Placed {
    /// Puts a pod onto a new node; false if no instance type takes it.
    fn open(&mut self, requests: Amounts, kinds: &[Kind]) -> bool {
        self.new.sort_by_key(|node| node.pods);
        if self.new.iter_mut().any(|node| node.add(requests, kinds)) {
            return true;
        }
        let mut node = NewNode { requests: [0; 3], pods: 0, kinds: (0..kinds.len()).collect() };
        let is_open = node.add(requests, kinds);
        if is_open {
            self.new.push(node);
        }
        is_open
    }
}

impl NewNode {
    fn add(&mut self, more: Amounts, kinds: &[Kind]) -> bool {
        let requests = std::array::from_fn(|n| self.requests[n] + more[n]);
        let left: Vec<usize> =
            self.kinds.iter().copied().filter(|kind| fits(requests, kinds[*kind].allocatable)).collect();
        if left.is_empty() {
            return false;
        }
        *self = Self { requests, pods: self.pods + 1, kinds: left };
        true
    }
}

fn fits(requests: Amounts, free: Amounts) -> bool {
    requests.iter().zip(free).all(|(requested, free)| *requested <= free)
}

pub fn minus(from: Amounts, requests: Amounts) -> Amounts {
    std::array::from_fn(|n| from[n] - requests[n])
}
