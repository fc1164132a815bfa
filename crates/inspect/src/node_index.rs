//! The pool and the NodeClaim of each node of an input, the node of each NodeClaim, and the offering of a type, by key.
//!
//! Nearly every answer about a cluster asks this for each node. A scan of pools and NodeClaims per node took more than half a
//! second at 10,000 of each, and the page asks at every change. An index reads each kind once and gives the object that a scan
//! finds: the first in the order of the input. Callers: [`inventory`](crate::inventory), `simulation`, `advice`, and
//! `croft plan --live`.

use std::{borrow::Cow, cell::OnceCell};

use croft_api::{NodeClaim, TenantPool, convert::scheduler::value};
use croft_manifest::Input;
use croft_scheduler::{CapacityType, InstanceType, Offering};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use rustc_hash::FxHashMap;

/// An object with its place in the order of the input.
type Ranked<'i, T> = (usize, &'i T);

/// The first object of each key.
type FirstByKey<'i, T> = FxHashMap<Cow<'i, str>, Ranked<'i, T>>;

/// The first in the order of the input.
fn first<'i, T>(found: impl IntoIterator<Item = Option<Ranked<'i, T>>>) -> Option<&'i T> {
    found.into_iter().flatten().min_by_key(|(rank, _)| *rank).map(|(_, object)| object)
}

/// Pools, NodeClaims and nodes of an input by the keys that connect them. A kind is read by the first question that needs it.
pub struct NodeIndex<'i> {
    input: &'i Input,
    /// Pools by the key, then by the value of their label.
    pools: OnceCell<FxHashMap<&'i str, FirstByKey<'i, TenantPool>>>,
    claims: OnceCell<ByInstance<'i, NodeClaim>>,
    nodes: OnceCell<ByInstance<'i, Node>>,
}

impl<'i> NodeIndex<'i> {
    /// The index of `input`.
    #[must_use]
    pub const fn new(input: &'i Input) -> Self {
        Self { input, pools: OnceCell::new(), claims: OnceCell::new(), nodes: OnceCell::new() }
    }

    /// The input.
    pub(crate) const fn input(&self) -> &'i Input {
        self.input
    }

    /// The pool whose label a node carries.
    #[must_use]
    pub fn pool_of(&self, node: &Node) -> Option<&'i TenantPool> {
        let pools = self.pools.get_or_init(|| {
            let mut pools: FxHashMap<&str, FirstByKey<'_, TenantPool>> = FxHashMap::default();
            for (rank, pool) in self.input.pools.iter().enumerate() {
                let of_key = pools.entry(&pool.spec.key).or_default();
                of_key.entry(Cow::Owned(value(pool))).or_insert((rank, &pool.object));
            }
            pools
        });
        let labelled =
            |(key, value): (&String, &String)| pools.get(key.as_str())?.get(value.as_str()).copied();
        first(node.labels().iter().map(labelled))
    }

    /// The NodeClaim whose instance a node is.
    #[must_use]
    pub fn claim_of(&self, node: &Node) -> Option<&'i NodeClaim> {
        self.claims().on(Instance::of_node(node))
    }

    /// The NodeClaim whose status names a node, whatever its instance.
    #[must_use]
    pub fn claim_naming(&self, node: &str) -> Option<&'i NodeClaim> {
        first([self.claims().by_name.get(node).copied()])
    }

    /// The node that is a NodeClaim's instance.
    #[must_use]
    pub fn node_of(&self, claim: &NodeClaim) -> Option<&'i Node> {
        let nodes = self.nodes.get_or_init(|| {
            let nodes = self.input.nodes.iter().map(|node| &node.object);
            ByInstance::new(nodes, Instance::of_node)
        });
        nodes.on(Instance::of_claim(claim))
    }

    fn claims(&self) -> &ByInstance<'i, NodeClaim> {
        self.claims.get_or_init(|| {
            let claims = self.input.claims.iter().map(|claim| &claim.object);
            ByInstance::new(claims, Instance::of_claim)
        })
    }
}

/// The instance of a Node or a NodeClaim. Two are the same if their provider ids are, or, where one has none, their node names.
#[derive(Clone, Copy)]
struct Instance<'a> {
    provider_id: Option<&'a str>,
    node_name: Option<&'a str>,
}

impl<'a> Instance<'a> {
    fn of_node(node: &'a Node) -> Self {
        let spec = node.spec.as_ref();
        Self {
            provider_id: spec.and_then(|spec| spec.provider_id.as_deref()),
            node_name: node.metadata.name.as_deref(),
        }
    }

    fn of_claim(claim: &'a NodeClaim) -> Self {
        let status = claim.status.as_ref();
        Self {
            provider_id: status.and_then(|status| status.provider_id.as_deref()),
            node_name: status.and_then(|status| status.node_name.as_deref()),
        }
    }
}

/// Objects of one kind by their instances.
struct ByInstance<'i, T> {
    by_provider_id: FirstByKey<'i, T>,
    by_name: FirstByKey<'i, T>,
    /// Of those without a provider id.
    by_name_alone: FirstByKey<'i, T>,
}

impl<'i, T> ByInstance<'i, T> {
    fn new(objects: impl Iterator<Item = &'i T>, instance: impl Fn(&'i T) -> Instance<'i>) -> Self {
        let mut index = Self {
            by_provider_id: FirstByKey::default(),
            by_name: FirstByKey::default(),
            by_name_alone: FirstByKey::default(),
        };
        for found in objects.enumerate() {
            let Instance { provider_id, node_name } = instance(found.1);
            if let Some(id) = provider_id {
                index.by_provider_id.entry(Cow::Borrowed(id)).or_insert(found);
            }
            let Some(name) = node_name else { continue };
            index.by_name.entry(Cow::Borrowed(name)).or_insert(found);
            if provider_id.is_none() {
                index.by_name_alone.entry(Cow::Borrowed(name)).or_insert(found);
            }
        }
        index
    }

    fn on(&self, Instance { provider_id, node_name }: Instance<'_>) -> Option<&'i T> {
        let named = |objects: &FirstByKey<'i, T>| objects.get(node_name?).copied();
        match provider_id {
            Some(id) => first([self.by_provider_id.get(id).copied(), named(&self.by_name_alone)]),
            None => first([named(&self.by_name)]),
        }
    }
}

/// The instance types of a catalogue by name; of two with one name the first.
pub struct OfferingIndex<'t>(FxHashMap<&'t str, &'t InstanceType>);

impl<'t> OfferingIndex<'t> {
    /// The index of `types`.
    #[must_use]
    pub fn new(types: &'t [InstanceType]) -> Self {
        let mut by_name = FxHashMap::default();
        for kind in types {
            by_name.entry(kind.name.as_str()).or_insert(kind);
        }
        Self(by_name)
    }

    /// The instance type of that name.
    pub(crate) fn instance_type(&self, name: &str) -> Option<&'t InstanceType> {
        self.0.get(name).copied()
    }

    /// The offering of a type in a zone.
    #[must_use]
    pub fn offering(&self, name: &str, zone: &str, paid_as: CapacityType) -> Option<&'t Offering> {
        let mut offerings = self.instance_type(name)?.offerings.iter();
        offerings.find(|offering| offering.zone == zone && offering.capacity_type == paid_as)
    }
}

#[cfg(test)]
#[path = "node_index_test.rs"]
mod tests;
