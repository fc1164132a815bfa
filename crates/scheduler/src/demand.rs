//! Pending pods as classes: pods with the same needs, in order of arrival.

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    ids::{ClassIx, NodeIx, PodIx},
    index_vec::IndexVec,
    model::{
        options::Options,
        plan::{PodKey, ReasonKind},
    },
    state::{
        attachments::{AttachLimits, Dimension},
        claim::Claim,
        cluster::Cluster,
        interner::{NamespacedName, Sym},
        node_requirement::{NodeReq, Term},
        pod::QueueRank,
        pod_shape::{
            ClaimNames, IdentId, NodeReqId, PodAntiAffinity, SelectorId, Shape, ShapeId, TolerationsId,
        },
        requests::{ResourceId, amount},
        taint,
    },
};

/// Why pods have no place.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) kind: ReasonKind,
    /// In words.
    pub(crate) detail: String,
}

/// Pods with the same needs and the same priority.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) shape: ShapeId,
    pub(crate) priority: i32,
    /// In the order of the demand.
    pub(crate) pods: Vec<PodIx>,
    /// Selectors in use that match these pods, sorted.
    pub(crate) matched: Arc<[SelectorId]>,
    /// Node requirements: the pod's own and those of its volumes.
    pub(crate) reqs: Arc<[NodeReqId]>,
    /// How many of `reqs` are the pod's own.
    pub(crate) own_reqs: usize,
    /// A requirement without an id: a combination of several static volumes.
    pub(crate) extra: Arc<[NodeReq]>,
    /// Why no pool can take these pods.
    pub(crate) blocked: Option<Cause>,
    /// PersistentVolumeClaims whose volumes are attached to the node.
    pub(crate) claims: Vec<NamespacedName>,
    /// The room that each pod takes of a new node: the shape's requests, what a pod without requests counts for, and the volumes
    /// that no pod before it has, by the dimension of their driver. Sorted.
    pub(crate) requests: Arc<[(Dimension, i64)]>,
}

impl Class {
    pub(crate) fn shape<'a>(&self, cluster: &'a Cluster) -> &'a Shape {
        cluster.tables.shapes.get(self.shape)
    }

    /// The amount of a resource that each pod counts for on a new node without requesting any.
    pub(crate) fn assumed(&self, cluster: &Cluster, resource: ResourceId) -> i64 {
        if amount(&self.shape(cluster).requests, resource) > 0 {
            return 0;
        }
        cluster.without_requests.iter().find(|(id, _)| *id == resource).map_or(0, |(_, size)| *size)
    }

    pub(crate) fn node_needs(&self, cluster: &Cluster) -> NodeNeeds {
        NodeNeeds { reqs: Arc::clone(&self.reqs), tolerations: self.shape(cluster).tolerations }
    }

    pub(crate) fn matches(&self, selector: SelectorId) -> bool {
        self.matched.binary_search(&selector).is_ok()
    }
}

/// The properties that pods of one class share.
#[derive(PartialEq, Eq, Hash)]
struct ClassKey {
    priority: i32,
    shape: ShapeId,
    /// The selectors of others that match them.
    matched: Arc<[SelectorId]>,
    /// They wait for a claim of a pod before them.
    waits: bool,
}

/// Some pods of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassPods {
    pub(crate) class: ClassIx,
    pub(crate) count: u32,
}

/// The requirements of pods on a node, and the taints that they tolerate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeNeeds {
    pub(crate) reqs: Arc<[NodeReqId]>,
    pub(crate) tolerations: TolerationsId,
}

/// Input of one solve.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// By priority, then by arrival of the first pod.
    pub(crate) classes: IndexVec<ClassIx, Class>,
    /// With `simulate_default_scheduler`: the class of each pod in binding order. Pending pods first, then
    /// node by node those of nodes left out.
    pub(crate) turns: Vec<ClassIx>,
    /// Nodes to plan without.
    pub(crate) gone: FxHashSet<NodeIx>,
    /// Nodes left out count against limits all the same.
    pub(crate) gone_counts: bool,
    /// Nodes that no share counts, beside `gone`.
    pub(crate) leaving: FxHashSet<NodeIx>,
    /// Of the drivers of the pods' volumes.
    pub(crate) attach_limits: AttachLimits,
    /// Pods that need no place by this plan, since kube-scheduler makes room for them on a node: it preempts others there.
    pub(crate) preempting: Vec<(PodIx, NodeIx)>,
}

impl Demand {
    pub(crate) fn new(cluster: &Cluster, options: &Options) -> Self {
        let mut gone: FxHashSet<NodeIx> = FxHashSet::default();
        let mut order: Vec<(QueueRank, PodIx)> =
            cluster.demand.iter().map(|(rank, ix)| (*rank, *ix)).collect();
        for node in options.without_nodes.iter().flat_map(|name| cluster.numbers_of(name)) {
            if !gone.insert(node) {
                continue;
            }
            let before = order.len();
            for ix in cluster.nodes.find(node).iter().flat_map(|slot| &slot.pods) {
                // A DaemonSet's pod ends with its node, and so does a static one.
                if let Some(Some(rec)) = cluster.pods.find(*ix)
                    && rec.is_movable()
                {
                    order.push((rec.rank(), *ix));
                }
            }
            if options.simulate_default_scheduler {
                order.get_mut(before..).unwrap_or_default().sort_unstable();
            }
        }
        let turns: Vec<PodIx> = if options.simulate_default_scheduler {
            order.iter().map(|(_, ix)| *ix).collect()
        } else {
            Vec::new()
        };
        if !gone.is_empty() {
            order.sort_unstable();
        }
        let mut preempting = Vec::new();
        order.retain(|(_, ix)| {
            let node = preempted_node(cluster, options, &gone, *ix);
            preempting.extend(node.map(|node| (*ix, node)));
            node.is_none()
        });
        let matched = Matcher::new(cluster, order.iter().map(|(_, ix)| *ix));
        let mut numbers: FxHashMap<ClassKey, ClassIx> = FxHashMap::default();
        let mut exclusive = Exclusive::default();
        let mut by_ident: FxHashMap<IdentId, Arc<[SelectorId]>> = FxHashMap::default();
        let mut classes: IndexVec<ClassIx, Class> = IndexVec::new();
        let mut number_of: FxHashMap<PodIx, ClassIx> = FxHashMap::default();
        for (_, ix) in order {
            let Some(Some(rec)) = cluster.pods.find(ix) else { continue };
            let selectors = by_ident.entry(rec.ident).or_insert_with(|| matched.of(cluster, rec.ident));
            let waits = exclusive.is_taken(cluster, rec.shape);
            let matched = Arc::clone(selectors);
            let key = ClassKey { priority: rec.priority, shape: rec.shape, matched, waits };
            let number = *numbers.entry(key).or_insert_with_key(|key| {
                let mut class = resolve(cluster, &gone, rec.shape, rec.priority, Arc::clone(&key.matched));
                if waits {
                    class
                        .blocked
                        .get_or_insert(Cause { kind: ReasonKind::VolumeNotFound, detail: WAITS.to_owned() });
                }
                classes.push(class)
            });
            if let Some(class) = classes.find_mut(number) {
                class.pods.push(ix);
            }
            if options.simulate_default_scheduler {
                number_of.insert(ix, number);
            }
        }
        let turns = turns.iter().filter_map(|ix| number_of.get(ix).copied()).collect();
        let gone_counts = options.without_counts;
        let leaving = options.leaving.iter().flat_map(|name| cluster.numbers_of(name)).collect();
        let mut demand = Self { classes, turns, gone, gone_counts, leaving, preempting, ..Self::default() };
        demand.count_volumes(cluster);
        demand.count_missing_requests(cluster);
        demand
    }

    /// Adds the volumes of pods to their requests. Pods of one class share their claims, as do others that name the same: a
    /// volume is attached once for all that are on one node, so only the first pod takes room for it.
    fn count_volumes(&mut self, cluster: &Cluster) {
        if self.classes.iter().all(|class| class.claims.is_empty()) {
            return;
        }
        self.attach_limits = AttachLimits::new(cluster);
        let mut counted: FxHashSet<NamespacedName> = FxHashSet::default();
        for class in self.classes.iter_mut() {
            let is_single = class.pods.len() == 1;
            let new: Vec<NamespacedName> =
                class.claims.iter().filter(|claim| counted.insert(**claim)).copied().collect();
            let volumes = self.attach_limits.requests(cluster, &new);
            if is_single && !volumes.is_empty() {
                class.requests = class.requests.iter().copied().chain(volumes).collect();
            }
        }
    }

    /// Adds what pods without requests count for: an instance that is chosen by their requests alone holds hardly one of them.
    fn count_missing_requests(&mut self, cluster: &Cluster) {
        for class in self.classes.iter_mut() {
            let assumed =
                cluster.without_requests.map(|(id, _)| (Dimension::Resource(id), class.assumed(cluster, id)));
            let assumed = assumed.iter().filter(|(_, size)| *size > 0);
            if assumed.clone().next().is_some() {
                let named = class.requests.iter().filter(|(id, _)| assumed.clone().all(|(own, _)| own != id));
                let mut requests: Vec<(Dimension, i64)> = named.chain(assumed.clone()).copied().collect();
                requests.sort_unstable();
                class.requests = requests.into();
            }
        }
    }

    /// The class of a pending pod.
    pub(crate) fn class_of(&self, cluster: &Cluster, pod: &PodKey) -> Option<ClassIx> {
        let ix = cluster.pod_number(pod)?;
        self.classes.position(|class| class.pods.contains(&ix))
    }
}

/// The node where kube-scheduler makes room for a pod: it has nominated the pod for it, and the pods there that it may not
/// preempt leave room. The others are on their way out, though they still fill the node.
fn preempted_node(
    cluster: &Cluster,
    options: &Options,
    gone: &FxHashSet<NodeIx>,
    pod: PodIx,
) -> Option<NodeIx> {
    let rec = cluster.pods.find(pod)?.as_ref()?;
    let name = cluster.tables.symbols.text(rec.chosen.filter(|_| rec.node.is_none())?);
    let node = cluster.find_node(name).filter(|node| !gone.contains(node))?;
    if options.ruled_out.iter().any(|(out, node)| *out == *rec.key && node == name) {
        return None;
    }
    let slot = cluster.nodes.find(node)?;
    let info = slot.info.as_ref().filter(|info| !info.deleting)?;
    let shape = cluster.tables.shapes.get(rec.shape);
    taint::untolerated(cluster.tables.tolerations.get(shape.tolerations), &info.taints)
        .is_none()
        .then_some(())?;
    let there = || slot.pods.iter().filter_map(|ix| cluster.pods.find(*ix)?.as_ref());
    if there().all(|other| other.priority >= rec.priority) {
        // Nothing to preempt: an ordinary place.
        return None;
    }
    let stay: Vec<&Shape> = there()
        .filter(|other| other.priority >= rec.priority)
        .map(|other| cluster.tables.shapes.get(other.shape))
        .collect();
    let has_room = shape.requests.iter().all(|(id, size)| {
        let used = stay.iter().fold(0i64, |sum, other| sum.saturating_add(amount(&other.requests, *id)));
        amount(&info.allocatable, *id).saturating_sub(used) >= *size
    });
    // With room for it beside all of them, it waits for nothing.
    let waits = shape
        .requests
        .iter()
        .any(|(id, size)| amount(&info.allocatable, *id).saturating_sub(slot.used(*id)) < *size);
    (has_room && waits).then_some(node)
}

/// Why a pod waits for another pending one.
const WAITS: &str = "its ReadWriteOncePod claim is another pending pod's, which comes first";

/// Claims with ReadWriteOncePod that a pending pod has.
#[derive(Default)]
struct Exclusive(FxHashSet<NamespacedName>);

impl Exclusive {
    /// True if a pod of this shape needs a claim that a pod before it has. Its own are taken from here on.
    fn is_taken(&mut self, cluster: &Cluster, shape: ShapeId) -> bool {
        let Some(claims) = &cluster.tables.shapes.get(shape).claims else { return false };
        let exclusive = claims
            .iter()
            .filter(|claim| cluster.volumes.claims.get(claim).is_some_and(|claim| claim.exclusive));
        let own: Vec<NamespacedName> = exclusive.collect();
        let is_taken = own.iter().any(|claim| self.0.contains(claim));
        if !is_taken {
            self.0.extend(own);
        }
        is_taken
    }
}

/// Finds which selectors in use match a pod.
struct Matcher {
    by_namespace: FxHashMap<Sym, Vec<SelectorId>>,
    anywhere: Vec<SelectorId>,
}

impl Matcher {
    fn new(cluster: &Cluster, pods: impl Iterator<Item = PodIx>) -> Self {
        let tables = &cluster.tables;
        let (mut shapes, mut namespaces) = (BTreeSet::new(), FxHashSet::default());
        let mut idents = FxHashSet::default();
        for ix in pods {
            if let Some(Some(rec)) = cluster.pods.find(ix) {
                shapes.insert(rec.shape);
                if idents.insert(rec.ident) {
                    namespaces.insert(tables.idents.get(rec.ident).namespace);
                }
            }
        }
        let mut selectors = BTreeSet::new();
        for shape in shapes {
            let shape = tables.shapes.get(shape);
            selectors.extend(shape.spreads.iter().map(|s| s.selector));
            selectors.extend(shape.affinity.iter().map(|affinity| affinity.selector));
            selectors.extend(shape.anti_affinity.iter().map(|term| term.selector));
            selectors.extend(shape.preferred_pods.iter().map(|p| p.selector));
        }
        // Anti-affinity of running pods matters only where its selector matches the demand.
        for PodAntiAffinity { selector, .. } in cluster.holders.keys() {
            let named = tables.selectors.get(*selector).named_namespaces();
            if named.is_none_or(|names| names.iter().any(|n| namespaces.contains(n))) {
                selectors.insert(*selector);
            }
        }
        let mut result = Self { by_namespace: FxHashMap::default(), anywhere: Vec::new() };
        for selector in selectors {
            match tables.selectors.get(selector).named_namespaces() {
                Some(names) => {
                    for name in names {
                        result.by_namespace.entry(*name).or_default().push(selector);
                    }
                }
                None => result.anywhere.push(selector),
            }
        }
        result
    }

    fn of(&self, cluster: &Cluster, ident: IdentId) -> Arc<[SelectorId]> {
        let pod = cluster.tables.idents.get(ident);
        let named = self.by_namespace.get(&pod.namespace).into_iter().flatten();
        let mut result: Vec<SelectorId> = named
            .chain(&self.anywhere)
            .copied()
            .filter(|s| {
                let selector = cluster.tables.selectors.get(*s);
                selector.matches(&cluster.tables.symbols, &cluster.namespaces, pod)
            })
            .collect();
        result.sort_unstable();
        result.dedup();
        result.into()
    }
}

/// A class without pods: the shape with the constraints of its volumes.
fn resolve(
    cluster: &Cluster,
    gone: &FxHashSet<NodeIx>,
    shape: ShapeId,
    priority: i32,
    matched: Arc<[SelectorId]>,
) -> Class {
    let it = cluster.tables.shapes.get(shape);
    let mut class = Class {
        shape,
        priority,
        pods: Vec::new(),
        matched,
        reqs: Arc::from([]),
        own_reqs: it.reqs.len(),
        extra: Arc::from([]),
        blocked: None,
        claims: Vec::new(),
        requests: it.requests.iter().map(|(id, size)| (Dimension::Resource(*id), *size)).collect(),
    };
    let mut reqs = it.reqs.to_vec();
    let mut extra = Vec::new();
    if it.devices {
        let detail = "the pod has resource claims, which Croft can't evaluate".to_owned();
        class.blocked = Some(Cause { kind: ReasonKind::UnsupportedResourceClaim, detail });
    }
    for claim in it.claims.iter().flat_map(ClaimNames::iter) {
        class.claims.push(claim);
        let template = it.ephemeral.iter().find(|v| v.name == claim.name).map(|v| &v.template);
        let found = in_use(cluster, gone, claim)
            .and_then(|()| volume(cluster, claim, template, &mut reqs, &mut extra));
        if let Err(problem) = found {
            class.blocked.get_or_insert(Cause { kind: ReasonKind::VolumeNotFound, detail: problem });
        }
    }
    class.reqs = reqs.into();
    class.extra = extra.into();
    class
}

/// An error for a ReadWriteOncePod claim that a pod has on a node that stays.
fn in_use(cluster: &Cluster, gone: &FxHashSet<NodeIx>, claim: NamespacedName) -> Result<(), String> {
    if !cluster.volumes.claims.get(&claim).is_some_and(|claim| claim.exclusive) {
        return Ok(());
    }
    let mut staying = cluster.nodes.enumerate().filter(|(node, _)| !gone.contains(node));
    if staying.any(|(_, slot)| slot.claims.contains(&claim)) {
        let text = |sym| cluster.tables.symbols.text(sym);
        let (namespace, name) = (text(claim.namespace), text(claim.name));
        return Err(format!(
            "PersistentVolumeClaim {namespace}/{name} is ReadWriteOncePod and in use by another pod"
        ));
    }
    Ok(())
}

/// Adds the node requirements of a claim's volume. A claim that the ephemeral volume controller is still to create is what
/// `template` says: kube-scheduler waits for it, and then sees this.
fn volume(
    cluster: &Cluster,
    name: NamespacedName,
    template: Option<&Claim>,
    reqs: &mut Vec<NodeReqId>,
    extra: &mut Vec<NodeReq>,
) -> Result<(), String> {
    let text = |sym| cluster.tables.symbols.text(sym);
    let volumes = &cluster.volumes;
    let shown = || format!("PersistentVolumeClaim {}/{}", text(name.namespace), text(name.name));
    let claim = match (volumes.claims.get(&name), template) {
        (Some(claim), Some(template)) if !claim.is_for(template) => {
            return Err(format!(
                "{} wasn't created for the pod, whose ephemeral volume needs its name",
                shown()
            ));
        }
        (Some(claim), _) => claim,
        (None, Some(template)) => template,
        (None, None) => return Err(format!("{} isn't there", shown())),
    };
    if claim.deleting {
        return Err(format!("{} is being deleted", shown()));
    }
    if claim.lost {
        return Err(format!("{} has lost its volume", shown()));
    }
    if let Some(volume) = claim.volume {
        return match volumes.volumes.get(&volume) {
            Some(volume) => {
                reqs.extend(&volume.reqs);
                Ok(())
            }
            None => {
                Err(format!("{} is bound to PersistentVolume {}, which isn't there", shown(), text(volume)))
            }
        };
    }
    let Some(class_name) = claim.class.or_else(|| volumes.default_class()) else {
        return Err(format!("{} isn't bound and names no storage class", shown()));
    };
    let Some(class) = volumes.classes.get(&class_name) else {
        return Err(format!("{} names storage class {}, which isn't there", shown(), text(class_name)));
    };
    if !class.waits && !claim.is_new {
        return Err(format!(
            "{} isn't bound yet, and storage class {} binds at once, not when a pod comes",
            shown(),
            text(class_name)
        ));
    }
    reqs.extend(class.topologies);
    if class.driver.is_none() {
        let mut terms: Vec<Term> = Vec::new();
        let mut free = volumes
            .volumes
            .iter()
            .filter(|(_, v)| !v.claimed && v.class == Some(class_name) && v.size >= claim.size)
            .collect::<Vec<_>>();
        free.sort_unstable_by_key(|(name, _)| text(**name));
        for (_, volume) in &free {
            match volume.reqs.first() {
                Some(req) => terms.extend(cluster.tables.reqs.get(*req).terms.iter().cloned()),
                None => return Ok(()),
            }
        }
        if free.is_empty() {
            return Err(format!("no free PersistentVolume of class {} suits {}", text(class_name), shown()));
        }
        extra.push(NodeReq { terms: terms.into() });
    }
    Ok(())
}
