//! How many volumes nodes can attach, by CSI driver, and the dimension of the packing that counts them.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    ids::{InstanceTypeIx, NodeIx},
    state::{
        catalog_index::CatalogIndex,
        cluster::Cluster,
        interner::{NamespacedName, Sym, label},
        requests::ResourceId,
    },
};

/// Room where no limit is known. No node has as many pods.
const UNLIMITED: i64 = 1 << 20;

/// A dimension of the packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Dimension {
    Resource(ResourceId),
    /// The volumes that this CSI driver attaches.
    Attachments(Sym),
}

impl Dimension {
    /// The resource; `None` for attachments.
    pub(crate) const fn resource(self) -> Option<ResourceId> {
        match self {
            Self::Resource(id) => Some(id),
            Self::Attachments(_) => None,
        }
    }
}

/// The known attach limits: nodes report their own, and tell what new ones of their type will report.
#[derive(Debug, Default)]
pub(crate) struct AttachLimits {
    /// By instance type and driver: the least that a node reports.
    of_type: FxHashMap<(Sym, Sym), i64>,
    /// By driver: the least that any node reports, or the most that a pod has. A guess for types of which nothing is known,
    /// which keeps volumes of several pods apart and no pod from all of them.
    least: FxHashMap<Sym, i64>,
    /// Drivers of which something is known.
    drivers: FxHashSet<Sym>,
}

impl AttachLimits {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let mut known = Self::default();
        let mut note = |kind: Option<Sym>, driver: Sym, limit: i64| {
            let least = |held: &mut i64| *held = limit.min(*held);
            if let Some(kind) = kind {
                known.of_type.entry((kind, driver)).and_modify(least).or_insert(limit);
            }
            known.least.entry(driver).and_modify(least).or_insert(limit);
        };
        for (node, limits) in &cluster.volumes.limits {
            let slot = cluster.node_numbers.get(&(false, *node)).and_then(|ix| cluster.nodes.find(*ix));
            let info = slot.and_then(|slot| slot.info.as_ref());
            let kind = info.and_then(|info| label(&info.labels, cluster.keys.instance_type));
            // A node that can attach none says nothing about others.
            for (driver, limit) in limits.iter().filter(|(_, limit)| *limit > 0) {
                note(kind, *driver, *limit);
            }
        }
        let names = cluster.templates().flat_map(|rec| &rec.catalog.attach_drivers);
        let drivers: FxHashSet<Sym> = names.filter_map(|name| cluster.tables.symbols.find(name)).collect();
        known.drivers = known.least.keys().copied().chain(drivers).collect();
        known
    }

    /// How many of a driver's volumes a node of a catalogue's type can attach.
    pub(crate) fn of_kind(
        &self,
        cluster: &Cluster,
        catalog: &CatalogIndex,
        kind: InstanceTypeIx,
        driver: Sym,
    ) -> i64 {
        let source = catalog.instance_type(kind);
        let observed = catalog.name(kind).and_then(|name| self.of_type.get(&(name, driver)));
        let name = cluster.tables.symbols.text(driver);
        let told = || source.and_then(|kind| kind.attach_limits.get(name));
        let limit = observed.or_else(told).or_else(|| self.least.get(&driver));
        limit.copied().unwrap_or(UNLIMITED).clamp(0, UNLIMITED)
    }

    /// How many of a driver's volumes a node can attach: what it reports, or as a coming one what is known of its type. As for
    /// kube-scheduler, a node that reports nothing has no limit.
    pub(crate) fn of_node(&self, cluster: &Cluster, node: NodeIx, driver: Sym) -> i64 {
        let Some(slot) = cluster.nodes.find(node) else { return 0 };
        if !slot.claim {
            let reported = cluster.volumes.limits.get(&slot.name).into_iter().flatten();
            return reported
                .filter(|(known, _)| *known == driver)
                .map(|(_, limit)| *limit)
                .next()
                .unwrap_or(i64::MAX);
        }
        let labels = slot.info.as_ref().map(|info| &info.labels);
        let kind = labels.and_then(|labels| label(labels, cluster.keys.instance_type));
        let mut catalogs =
            cluster.templates().filter_map(|rec| Some((&rec.catalog, rec.catalog.find(kind?)?)));
        catalogs.next().map_or(UNLIMITED, |(catalog, kind)| self.of_kind(cluster, catalog, kind, driver))
    }

    /// The volumes of `claims` by dimension, as far as a limit of their driver is known.
    pub(crate) fn requests(&mut self, cluster: &Cluster, claims: &[NamespacedName]) -> Vec<(Dimension, i64)> {
        let drivers: Vec<Sym> = claims.iter().filter_map(|claim| cluster.volumes.driver(*claim)).collect();
        let kinds: BTreeSet<Sym> =
            drivers.iter().copied().filter(|driver| self.drivers.contains(driver)).collect();
        let count = |kind: Sym| drivers.iter().filter(|driver| **driver == kind).fold(0i64, |sum, _| sum + 1);
        let counted: Vec<(Sym, i64)> = kinds.into_iter().map(|kind| (kind, count(kind))).collect();
        for (driver, count) in &counted {
            self.least.entry(*driver).and_modify(|least| *least = (*least).max(*count));
        }
        counted.into_iter().map(|(driver, count)| (Dimension::Attachments(driver), count)).collect()
    }
}
