//! A cluster at its end: pending pods are placed, and nodes are consolidated until no command is left.

use std::{collections::BTreeSet, sync::Arc};

use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Options, PodKey, Price};
use jiff::Timestamp;

use crate::{inventory::node_infos, simulation::Settling};

/// The search, and the time at which it is made.
pub(super) struct Search {
    pub(super) types: Arc<[InstanceType]>,
    pub(super) options: Options,
    pub(super) now: Timestamp,
}

/// A cluster at its end.
pub(super) struct Settled {
    /// Its objects: pods on their nodes, planned instances as Nodes.
    pub(super) input: Input,
    /// The known prices of the pools' nodes.
    pub(super) cost: Price,
    /// Nodes of pools whose price is unknown.
    pub(super) unpriced: usize,
    /// Pods without a node.
    pub(super) pending: BTreeSet<PodKey>,
}

impl Search {
    /// Carries `input` to its end. Only nodes of `pools` are removed.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub(super) fn settle(&self, mut input: Input, pools: &BTreeSet<String>) -> Result<Settled, InputError> {
        input.recorded_at = Some(self.now);
        let mut settling =
            Settling::new(input, Arc::clone(&self.types), self.options.clone()).only(pools.clone());
        settling.place_pending()?;
        settling.consolidate()?;
        let pending = settling.unschedulable().iter().map(|left| left.pod.clone()).collect();
        let input = settling.into_input();
        let nodes = node_infos(&input, &self.types);
        let of_pools = || nodes.iter().filter(|node| node.pool.is_some());
        Ok(Settled {
            cost: of_pools().filter_map(|node| node.price).sum(),
            unpriced: of_pools().filter(|node| node.price.is_none()).count(),
            pending,
            input,
        })
    }
}

impl Settled {
    /// The savings of `without`; none if it leaves a pod pending that has a node here, or has more nodes of unknown price.
    pub(super) fn saving(&self, without: &Self) -> Price {
        let is_comparable = without.unpriced <= self.unpriced && without.pending.is_subset(&self.pending);
        if is_comparable { self.cost.saturating_sub(without.cost) } else { Price::ZERO }
    }
}
