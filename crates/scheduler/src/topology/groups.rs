//! Topology groups: the pods that a selector matches, counted by topology domain.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    demand::{Class, Demand},
    ids::{ClassIx, GroupIx, LocalClassIx, NodeIx},
    index_vec::IndexVec,
    state::{
        cluster::Cluster,
        interner::{Sym, label},
        pod_shape::{FilterId, IdentId, NodeReqId, PodAffinity, PodAntiAffinity, SelectorId, Shape},
        taint,
    },
};

/// Pods of one domain, or of one node, that concern a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodCounts {
    /// Pods that the selector matches.
    pub(crate) matching: i64,
    /// Pods with required anti-affinity to matching pods; the selector need not match them themselves.
    pub(crate) repelling: i64,
}

/// One domain of a group's topology.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    pub(crate) value: Sym,
    pub(crate) pods: PodCounts,
    /// An eligible node is in it: kube-scheduler counts the domain.
    pub(crate) exists: bool,
}

/// Pods that a selector matches, by domain of one topology key.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) selector: SelectorId,
    pub(crate) key: Sym,
    /// Only nodes that pass this filter count.
    pub(crate) filter: Option<FilterId>,
    /// Domains of any key other than the hostname.
    pub(crate) domains: Vec<Domain>,
    /// For the hostname, whose domains are nodes.
    pub(crate) nodes: FxHashMap<NodeIx, PodCounts>,
    /// Pods that the selector matches, in any domain.
    pub(crate) total: i64,
    /// Domains of the nodes left out on which the selector matches a pod.
    left_out_domains: FxHashSet<Sym>,
}

impl Group {
    /// A group without counts.
    pub(crate) fn new(selector: SelectorId, key: Sym, filter: Option<FilterId>) -> Self {
        let (nodes, left_out_domains) = (FxHashMap::default(), FxHashSet::default());
        Self { selector, key, filter, domains: Vec::new(), nodes, total: 0, left_out_domains }
    }

    /// True if required affinity to the group allows a pod in the domain `value`. `is_first`: no domain has a matching pod, and
    /// the pod may be the first. Pods of nodes left out stay in their domains: a moved pod is created while the pod that it
    /// replaces ends, and its domain must be that of the replaced pod and of those that haven't moved yet.
    pub(crate) fn admits_affinity(&self, value: Sym, is_first: bool) -> bool {
        let has_left_out = || self.left_out_domains.is_empty() || self.left_out_domains.contains(&value);
        self.count_in(Some(value)) > 0 || is_first && has_left_out()
    }

    /// The domain of `value`, existing or new.
    pub(crate) fn domain(&mut self, value: Sym) -> &mut Domain {
        let index = self.domains.iter().position(|d| d.value == value).unwrap_or(self.domains.len());
        if index == self.domains.len() {
            self.domains.push(Domain { value, pods: PodCounts::default(), exists: false });
        }
        #[expect(clippy::indexing_slicing, reason = "`index` was found, or is that of the domain just added")]
        &mut self.domains[index]
    }

    pub(crate) fn find(&self, value: Sym) -> Option<&Domain> {
        self.domains.iter().find(|d| d.value == value)
    }

    /// True if a pod in some domain has required anti-affinity to matching pods.
    fn has_repelling(&self) -> bool {
        let of_domains = self.domains.iter().map(|domain| &domain.pods);
        of_domains.chain(self.nodes.values()).any(|pods| pods.repelling > 0)
    }

    /// Matching pods in a domain; zero without the label.
    pub(crate) fn count_in(&self, value: Option<Sym>) -> i64 {
        value.and_then(|value| self.find(value)).map_or(0, |domain| domain.pods.matching)
    }
}

/// A hard topology spread constraint of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpreadRule {
    pub(crate) group: GroupIx,
    pub(crate) max_skew: i64,
    pub(crate) min_domains: i64,
    /// The class matches its own selector: each of its pods adds to the skew.
    pub(crate) own: bool,
}

/// Topology constraints of a class, as indices into [`Groups::list`]. Those over hostnames have names with `host_`: they are kept
/// by the choice of a node or of an instance, the others by the choice of a domain set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) spreads: Vec<SpreadRule>,
    pub(crate) host_spreads: Vec<SpreadRule>,
    /// Groups that required pod affinity names: a pod goes only to domains with a matching pod.
    pub(crate) affinity: Vec<GroupIx>,
    pub(crate) host_affinity: Option<GroupIx>,
    /// The class matches all its own affinity terms: kube-scheduler lets its first pod go anywhere while no pod matches.
    pub(crate) may_be_first: bool,
    pub(crate) anti_affinity: Vec<GroupIx>,
    pub(crate) host_anti_affinity: Vec<GroupIx>,
    /// Groups whose selector matches the class. Their filter is not considered here: it depends on the node.
    pub(crate) matching_groups: Vec<GroupIx>,
    pub(crate) host_matching_groups: Vec<GroupIx>,
}

impl Topology {
    /// True if the choice of domain matters: the class is constrained by it or counted in it.
    pub(crate) fn needs_domain(&self) -> bool {
        self.is_constrained() || !self.matching_groups.is_empty()
    }

    /// True if pods placed later may make room for the class.
    pub(crate) fn needs_others(&self) -> bool {
        self.is_constrained() || self.host_affinity.is_some() || !self.host_spreads.is_empty()
    }

    /// True if the class has required affinity or anti-affinity.
    pub(crate) fn has_pod_terms(&self) -> bool {
        !self.affinity.is_empty()
            || self.host_affinity.is_some()
            || !self.anti_affinity.is_empty()
            || !self.host_anti_affinity.is_empty()
    }

    /// True if the class itself is constrained to some domain.
    pub(crate) fn is_constrained(&self) -> bool {
        !(self.spreads.is_empty() && self.affinity.is_empty() && self.anti_affinity.is_empty())
    }
}

/// All groups, and the constraints of each class: of a solve by [`ClassIx`], of a block by its own.
#[derive(Clone)]
pub(crate) struct Groups<C = ClassIx> {
    pub(crate) list: IndexVec<GroupIx, Group>,
    pub(crate) of: IndexVec<C, Topology>,
}

impl<C> Groups<C> {
    /// True if kube-scheduler sees the anti-affinity of nominated pods to pods of a class. It counts nominated pods as if they ran on
    /// the node that it tries, but skips InterPodAffinity, nominated pods included, for a pod without required terms to which no
    /// bound pod has anti-affinity (`PreFilter` in interpodaffinity/filtering.go).
    pub(crate) fn are_nominations_seen(&self, topology: &Topology) -> bool {
        let mut matching = topology.matching_groups.iter().chain(&topology.host_matching_groups);
        topology.has_pod_terms() || matching.any(|g| self.list.find(*g).is_some_and(Group::has_repelling))
    }
}

/// The groups of a block.
pub(crate) type BlockGroups = Groups<LocalClassIx>;

impl<C> Default for Groups<C> {
    fn default() -> Self {
        Self { list: IndexVec::default(), of: IndexVec::default() }
    }
}

/// Groups under construction: one per selector, key and filter.
#[derive(Default)]
struct Builder {
    list: IndexVec<GroupIx, Group>,
    ids: FxHashMap<(SelectorId, Sym, Option<FilterId>), GroupIx>,
    by_selector: FxHashMap<SelectorId, Vec<GroupIx>>,
}

impl Builder {
    /// The group of `selector`, existing or new, without counts. `key` is canonical.
    fn group(&mut self, selector: SelectorId, key: Sym, filter: Option<FilterId>) -> GroupIx {
        let Self { list, ids, by_selector } = self;
        *ids.entry((selector, key, filter)).or_insert_with(|| {
            let group = list.push(Group::new(selector, key, filter));
            by_selector.entry(selector).or_default().push(group);
            group
        })
    }

    /// The groups that constrain `class`; those that count it come once all groups are known.
    fn topology(&mut self, cluster: &Cluster, class: &Class) -> Topology {
        let host = cluster.keys.hostname;
        let key = |key: Sym| cluster.keys.canonical(key);
        let shape: &Shape = class.shape(cluster);
        let mut topology = Topology::default();
        for s in shape.spreads.iter().filter(|s| s.hard) {
            let rule = SpreadRule {
                group: self.group(s.selector, key(s.key), Some(s.filter)),
                max_skew: i64::from(s.max_skew),
                min_domains: i64::from(s.min_domains),
                own: class.matches(s.selector),
            };
            let to = if s.key == host { &mut topology.host_spreads } else { &mut topology.spreads };
            to.push(rule);
        }
        if let Some(PodAffinity { selector, keys }) = &shape.affinity {
            topology.may_be_first = class.matches(*selector);
            for k in keys {
                let group = self.group(*selector, key(*k), None);
                if *k == host {
                    topology.host_affinity = Some(group);
                } else {
                    topology.affinity.push(group);
                }
            }
        }
        if topology.host_affinity.is_some()
            && let Some(PodAffinity { selector, .. }) = &shape.affinity
        {
            // Pods on one host share its zone: domains that the class chooses must be those of its affinity targets.
            let chosen = shape.spreads.iter().filter(|s| s.hard).map(|s| s.key);
            for k in chosen.chain(shape.anti_affinity.iter().map(|term| term.key)).filter(|k| *k != host) {
                let group = self.group(*selector, key(k), None);
                if !topology.affinity.contains(&group) {
                    topology.affinity.push(group);
                }
            }
        }
        for PodAntiAffinity { selector, key: k } in &shape.anti_affinity {
            let group = self.group(*selector, key(*k), None);
            let to = if *k == host { &mut topology.host_anti_affinity } else { &mut topology.anti_affinity };
            to.push(group);
        }
        topology
    }

    /// Adds the anti-affinity of running pods, where it concerns the demand.
    fn add_repelling(&mut self, cluster: &Cluster, demand: &Demand) {
        let matched: rustc_hash::FxHashSet<SelectorId> =
            demand.classes.iter().flat_map(|c| c.matched.iter().copied()).collect();
        let mut terms: Vec<_> =
            cluster.holders.keys().filter(|term| matched.contains(&term.selector)).copied().collect();
        terms.sort_unstable();
        for term in terms {
            let group = self.group(term.selector, cluster.keys.canonical(term.key), None);
            count_repelling(cluster, demand, &mut self.list[group], term);
        }
    }
}

impl Groups {
    pub(crate) fn new(cluster: &Cluster, demand: &Demand) -> Self {
        let mut groups = Builder::default();
        let mut of: IndexVec<ClassIx, Topology> =
            demand.classes.iter().map(|class| groups.topology(cluster, class)).collect();
        groups.add_repelling(cluster, demand);
        let Builder { mut list, by_selector, .. } = groups;
        for group in &mut list {
            count_matching(cluster, demand, group);
        }
        for (class, topology) in demand.classes.iter().zip(&mut of) {
            for selector in class.matched.iter() {
                for group in by_selector.get(selector).into_iter().flatten() {
                    let host = list[*group].key == cluster.keys.hostname;
                    let to =
                        if host { &mut topology.host_matching_groups } else { &mut topology.matching_groups };
                    to.push(*group);
                }
            }
        }
        Self { list, of }
    }

    /// Marks domains of coming nodes as existing: they exist by the time that pods are bound to those nodes.
    pub(crate) fn mark_coming_domains(&mut self, cluster: &Cluster) {
        for (node, slot) in cluster.nodes.enumerate() {
            if slot.info.as_ref().is_none_or(|i| !i.coming) {
                continue;
            }
            for group in self.list.iter_mut().filter(|g| g.key != cluster.keys.hostname) {
                if let Some(value) = group
                    .filter
                    .filter(|f| is_eligible(cluster, *f, node))
                    .and_then(|_| node_domain(cluster, node, group.key))
                {
                    group.domain(value).exists = true;
                }
            }
        }
    }

    /// The least count among the domains that kube-scheduler counts now; zero with fewer than `min_domains`.
    pub(crate) fn min_count_now(&self, rule: &SpreadRule) -> i64 {
        let existing = self.list[rule.group].domains.iter().filter(|d| d.exists);
        let (mut least, mut number) = (i64::MAX, 0);
        for domain in existing {
            least = least.min(domain.pods.matching);
            number += 1;
        }
        if number == 0 || number < rule.min_domains { 0 } else { least }
    }
}

/// True for a registered node that the run doesn't leave out.
pub(crate) fn is_remaining(cluster: &Cluster, demand: &Demand, node: NodeIx) -> bool {
    !demand.gone.contains(&node) && is_registered(cluster, node)
}

/// True if the pods of `node` count in `group`. Those of a coming node are planned for it and not bound yet: they share its
/// host already, and its other domains once it registers.
fn is_counted_in(cluster: &Cluster, demand: &Demand, group: &Group, node: NodeIx) -> bool {
    is_remaining(cluster, demand, node)
        || group.key == cluster.keys.hostname && !demand.gone.contains(&node) && is_coming(cluster, node)
}

fn is_coming(cluster: &Cluster, node: NodeIx) -> bool {
    cluster.nodes.find(node).is_some_and(|slot| slot.info.as_ref().is_some_and(|i| i.coming))
}

fn is_registered(cluster: &Cluster, node: NodeIx) -> bool {
    cluster.nodes.find(node).is_some_and(|slot| slot.info.as_ref().is_some_and(|i| !i.coming))
}

/// The label `key` (canonical) of a node, by that name or an older one.
pub(crate) fn node_domain(cluster: &Cluster, node: NodeIx, key: Sym) -> Option<Sym> {
    let info = cluster.nodes.find(node)?.info.as_ref()?;
    label(&info.labels, key)
}

/// True if `node` passes `filter`.
pub(crate) fn is_eligible(cluster: &Cluster, filter: FilterId, node: NodeIx) -> bool {
    let Some(slot) = cluster.nodes.find(node) else { return false };
    let Some(info) = &slot.info else { return false };
    let tables = &cluster.tables;
    let filter = tables.filters.get(filter);
    // A coming node gets its hostname label when it registers.
    let has = |key: &Sym| label(&info.labels, *key).is_some() || info.coming && *key == cluster.keys.hostname;
    filter.keys.iter().all(has)
        && filter
            .reqs
            .iter()
            .all(|r| tables.reqs.get(*r).matches(&tables.symbols, &info.labels, Some(slot.name)))
        && filter
            .tolerations
            .is_none_or(|t| taint::untolerated(tables.tolerations.get(t), &info.taints).is_none())
}

fn count_repelling(cluster: &Cluster, demand: &Demand, group: &mut Group, term: PodAntiAffinity) {
    for (node, count) in cluster.holders.get(&term).into_iter().flatten() {
        if !is_counted_in(cluster, demand, group, *node) {
            continue;
        }
        if group.key == cluster.keys.hostname {
            group.nodes.entry(*node).or_default().repelling += i64::from(*count);
        } else if let Some(value) = node_domain(cluster, *node, term.key) {
            group.domain(value).pods.repelling += i64::from(*count);
        }
    }
}

fn count_matching(cluster: &Cluster, demand: &Demand, group: &mut Group) {
    let tables = &cluster.tables;
    let selector = tables.selectors.get(group.selector);
    let host = group.key == cluster.keys.hostname;
    let mut add = |ident: IdentId| {
        if !selector.matches(&tables.symbols, &cluster.namespaces, tables.idents.get(ident)) {
            return;
        }
        for (node, count) in cluster.ident_nodes.get(&ident).into_iter().flatten() {
            if demand.gone.contains(node)
                && let Some(value) = node_domain(cluster, *node, group.key)
            {
                group.left_out_domains.insert(value);
            }
            if !is_counted_in(cluster, demand, group, *node)
                || group.filter.is_some_and(|f| !is_eligible(cluster, f, *node))
            {
                continue;
            }
            let count = i64::from(*count);
            if host {
                group.nodes.entry(*node).or_default().matching += count;
                // A pod with affinity to its own kind may start anywhere until one of them is bound.
                group.total += if is_coming(cluster, *node) { 0 } else { count };
            } else if let Some(value) = node_domain(cluster, *node, group.key) {
                group.domain(value).pods.matching += count;
                group.total += count;
            }
        }
    };
    match selector.named_namespaces() {
        Some(names) => {
            for name in names {
                cluster.idents_of.get(name).into_iter().flatten().for_each(|ident| add(*ident));
            }
        }
        None => cluster.idents_of.values().flatten().for_each(|ident| add(*ident)),
    }
    if let Some(filter) = group.filter.filter(|_| !host) {
        let reqs = &tables.filters.get(filter).reqs;
        for node in candidates(cluster, reqs) {
            // A node that is left out stays while its pods are bound elsewhere: its domain counts, without them.
            if is_registered(cluster, node)
                && is_eligible(cluster, filter, node)
                && let Some(value) = node_domain(cluster, node, group.key)
            {
                group.domain(value).exists = true;
            }
        }
    }
    // Hash maps give domains in no order; plans need one.
    group.domains.sort_unstable_by(|a, b| tables.symbols.text(a.value).cmp(tables.symbols.text(b.value)));
}

/// Existing and coming nodes that may satisfy all of `reqs`: those under the rarest label that one of them
/// names.
pub(crate) fn candidates(cluster: &Cluster, reqs: &[NodeReqId]) -> Vec<NodeIx> {
    let mut best: Option<(usize, &crate::state::node_requirement::Expr)> = None;
    for req in reqs {
        let req = cluster.tables.reqs.get(*req);
        let [term] = &*req.terms else { continue };
        for expr in term.labels.iter().filter(|e| {
            e.operator == crate::model::requirement::Operator::In && e.key != cluster.keys.hostname
        }) {
            let size =
                expr.values.iter().map(|v| cluster.by_label.get(&(expr.key, *v)).map_or(0, |s| s.len()));
            let size = size.sum();
            if best.is_none_or(|(least, _)| size < least) {
                best = Some((size, expr));
            }
        }
    }
    match best {
        Some((_, expr)) => {
            let sets = expr.values.iter().filter_map(|v| cluster.by_label.get(&(expr.key, *v)));
            sets.flatten().copied().collect()
        }
        None => {
            let all = cluster.nodes.enumerate().filter(|(_, slot)| slot.info.is_some());
            all.map(|(ix, _)| ix).collect()
        }
    }
}

/// Groups that constrain or count `class`, by index.
pub(crate) fn groups_of(topology: &Topology) -> impl Iterator<Item = GroupIx> + '_ {
    let spreads = topology.spreads.iter().chain(&topology.host_spreads).map(|s| s.group);
    spreads
        .chain(topology.affinity.iter().copied())
        .chain(topology.host_affinity)
        .chain(topology.anti_affinity.iter().copied())
        .chain(topology.host_anti_affinity.iter().copied())
        .chain(topology.matching_groups.iter().copied())
        .chain(topology.host_matching_groups.iter().copied())
}
