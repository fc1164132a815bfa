//! Placement onto existing and coming nodes, before any instance is launched.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque, hash_map::Entry},
    sync::Arc,
};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    demand::{Class, Demand},
    existing::{
        cache::SolveCache,
        host_counts::{HostCounts, PlannedPods},
        room::Place,
        rules::{host_room, is_domain_open, is_within_skew},
    },
    ids::{ClassIx, GroupIx, NodeIx},
    index_vec::IndexVec,
    model::options::Options,
    state::{
        attachments::AttachLimits,
        cluster::Cluster,
        interner::{NamespacedName, Sym},
        node_requirement::{NodeReq, Term},
        requests::{ResourceId, amount},
        taint,
    },
    topology::{
        groups::{Groups, SpreadRule, candidates, is_eligible, node_domain},
        preferences::{self, PreferenceCounts},
    },
};

/// Conclusions about classes from earlier attempts.
#[derive(Default)]
pub(crate) struct Restraint {
    /// Classes that were kept off existing nodes for other pods, in vain: they are not kept off again.
    pub(crate) unrestricted: BTreeSet<ClassIx>,
    /// Places of pods that others leave room for in their spreads, once for each pod.
    pub(crate) reserved: Vec<(ClassIx, NodeIx)>,
}

/// Plans pods onto existing nodes, then onto coming ones.
pub(crate) struct Existing<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) demand: &'a Demand,
    places: FxHashMap<NodeIx, Place>,
    cache: &'a SolveCache,
    /// (class, node) pairs that are ruled out.
    ruled_out: FxHashSet<(ClassIx, NodeIx)>,
    /// Nodes that are closed to every class.
    closed: FxHashSet<NodeIx>,
    /// Places each pod on the emptiest node, as kube-scheduler does.
    simulate_default_scheduler: bool,
    preference_counts: PreferenceCounts,
    /// By class: classes that need a pod of it on their host.
    followers: IndexVec<ClassIx, Vec<ClassIx>>,
    /// Spreads of planned pods, by group and domain.
    spreads: FxHashMap<(GroupIx, Sym), SpreadRule>,
    hosts: HostCounts,
    restraint: &'a Restraint,
    /// Unrestricted pods that violate the spread of others, with their nodes.
    pub(crate) violating: Vec<(ClassIx, NodeIx)>,
    /// Classes that were kept off some node for other pods.
    held: BTreeSet<ClassIx>,
    /// Unplaced pods of each class.
    pub(crate) left: IndexVec<ClassIx, u32>,
    pub(crate) steps: u64,
}

impl<'a> Existing<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        demand: &'a Demand,
        options: &Options,
        restraint: &'a Restraint,
        cache: &'a SolveCache,
    ) -> Self {
        let ruled_out = options
            .ruled_out
            .iter()
            .filter_map(|(pod, node)| Some((demand.class_of(cluster, pod)?, cluster.find_node(node)?)))
            .collect();
        Self {
            ruled_out,
            closed: options.closed_nodes.iter().flat_map(|name| cluster.numbers_of(name)).collect(),
            simulate_default_scheduler: options.simulate_default_scheduler,
            cluster,
            demand,
            places: FxHashMap::default(),
            cache,
            preference_counts: PreferenceCounts::default(),
            followers: IndexVec::new(),
            spreads: FxHashMap::default(),
            hosts: HostCounts::new(options.simulate_default_scheduler),
            restraint,
            violating: Vec::new(),
            held: BTreeSet::new(),
            left: demand.classes.iter().map(|c| u32::try_from(c.pods.len()).unwrap_or(u32::MAX)).collect(),
            steps: 0,
        }
    }

    /// Places what fits. A pod may make pods with affinity to it placeable, so that rounds repeat until none
    /// helps.
    pub(crate) fn run(&mut self, groups: &mut Groups) {
        if self.cluster.nodes.iter().all(|slot| slot.info.is_none()) {
            return;
        }
        self.followers = followers(groups);
        let restraint = self.restraint;
        for (class, node) in &restraint.reserved {
            self.reserve(groups, *class, *node, 1);
        }
        let mut reserved: BTreeSet<ClassIx> = restraint.reserved.iter().map(|(class, _)| *class).collect();
        if self.simulate_default_scheduler {
            groups.mark_coming_domains(self.cluster);
            for (class, count) in runs(&self.demand.turns) {
                if self.left[class] > 0 && self.demand.classes[class].blocked.is_none() {
                    self.place_class(groups, class, false, count);
                }
            }
        }
        let last = startable_beside_others(groups, self.demand);
        for coming in [false, true] {
            if coming {
                let mut nodes = self.cluster.nodes.iter().filter_map(|slot| slot.info.as_ref());
                if self.simulate_default_scheduler || !nodes.any(|info| info.coming) {
                    return;
                }
                groups.mark_coming_domains(self.cluster);
            }
            let mut again = false;
            loop {
                let before: u64 = self.left.iter().map(|n| u64::from(*n)).sum();
                for class in self.demand.classes.ids() {
                    // Free resources only shrink: earlier placements help only classes with affinity or spreads.
                    let its_turn =
                        if again { groups.of[class].needs_others() } else { !last.contains(&class) };
                    if its_turn && self.left[class] > 0 && self.demand.classes[class].blocked.is_none() {
                        if reserved.remove(&class) {
                            for (_, node) in restraint.reserved.iter().filter(|(other, _)| *other == class) {
                                self.reserve(groups, class, *node, -1);
                            }
                        }
                        self.place_class(groups, class, coming, u32::MAX);
                    }
                }
                let after: u64 = self.left.iter().map(|n| u64::from(*n)).sum();
                let postponed = !again && !last.is_empty();
                if after == before && !postponed {
                    break;
                }
                again = true;
            }
        }
    }

    /// Classes that were kept off existing nodes for other pods, and the followers of each.
    pub(crate) fn held(&self) -> Vec<(ClassIx, Vec<ClassIx>)> {
        self.held.iter().map(|class| (*class, self.followers[*class].clone())).collect()
    }

    /// The places that received pods, by node index.
    pub(crate) fn finish(self) -> Vec<Place> {
        let mut places: Vec<Place> = self.places.into_values().filter(|p| !p.content.is_empty()).collect();
        places.sort_unstable_by_key(|p| p.node);
        places
    }

    /// Nodes whose labels and taints suit the class, those left out included.
    fn suitable(&self, class: &Class) -> Arc<[NodeIx]> {
        let cluster = self.cluster;
        let shape = class.shape(cluster);
        self.cache.suitable(class.node_needs(cluster), || {
            let tables = &cluster.tables;
            let tolerations = tables.tolerations.get(shape.tolerations);
            let mut list: Vec<NodeIx> = candidates(cluster, &class.reqs)
                .into_iter()
                .filter(|ix| {
                    let slot = &cluster.nodes[*ix];
                    slot.info.as_ref().is_some_and(|info| {
                        !info.deleting
                            && taint::untolerated(tolerations, &info.taints).is_none()
                            && class.reqs.iter().all(|r| {
                                let name = (!info.coming).then_some(slot.name);
                                tables.reqs.get(*r).matches(&tables.symbols, &info.labels, name)
                            })
                    })
                })
                .collect();
            list.sort_by_cached_key(|ix| {
                let slot = &cluster.nodes[*ix];
                let soft = slot.info.as_ref().is_some_and(|i| taint::is_discouraged(tolerations, &i.taints));
                (soft, tables.symbols.text(slot.name))
            });
            list.into()
        })
    }

    /// Places up to `most` pods of a class onto existing nodes or, with `coming`, onto coming ones.
    fn place_class(&mut self, groups: &mut Groups, number: ClassIx, coming: bool, most: u32) {
        let demand = self.demand;
        let class = &demand.classes[number];
        let nodes = self.suitable(class);
        let has_preferences = preferences::class_preferences(self.cluster, class).next().is_some();
        let has_spreads = !groups.of[number].spreads.is_empty();
        let prefers = has_preferences || !class.shape(self.cluster).preferred_nodes.is_empty();
        if has_spreads && !prefers {
            self.place_evenly(groups, number, &nodes, coming);
            return;
        }
        if self.simulate_default_scheduler && !prefers {
            self.place_on_emptiest(groups, number, &nodes, most);
            return;
        }
        // One at a time where domains count, and where each placement changes the next one's preference.
        let one_by_one = has_spreads || preferences::has_preference_against_itself(self.cluster, class);
        loop {
            let before = self.left[number];
            let order = self.by_preference(class, &nodes, has_preferences);
            for node in order.iter() {
                if !self.is_open(number, *node, coming) {
                    continue;
                }
                while self.left[number] > 0 {
                    self.steps += 1;
                    let most = if one_by_one { 1 } else { self.left[number] };
                    let placed = self.put(groups, number, *node, most);
                    if placed == 0 {
                        break;
                    }
                    self.record(number, *node, placed);
                    if one_by_one {
                        break;
                    }
                }
                if self.left[number] == 0 {
                    return;
                }
            }
            if self.left[number] == before || !one_by_one {
                return;
            }
        }
    }

    /// True if the class may be tried on `node`.
    pub(super) fn is_open(&self, number: ClassIx, node: NodeIx, coming: bool) -> bool {
        let info = self.cluster.nodes[node].info.as_ref();
        let is_ruled_out = self.demand.gone.contains(&node)
            || self.closed.contains(&node)
            || self.ruled_out.contains(&(number, node));
        !is_ruled_out && info.is_some_and(|i| self.simulate_default_scheduler || i.coming == coming)
    }

    /// Takes placed pods off the rest of their class, and counts them for the preferences of others.
    pub(super) fn record(&mut self, number: ClassIx, node: NodeIx, placed: u32) {
        self.left[number] -= placed;
        let (cluster, demand) = (self.cluster, self.demand);
        self.preference_counts
            .record(&demand.classes[number], placed, |key| preferences::domain(cluster, node, key));
    }

    /// Places pods one by one where the fewest of them are. The more even the placement, the more of them can
    /// be nominated at the same time, and a pod that isn't nominated takes the room of a later one.
    fn place_evenly(&mut self, groups: &mut Groups, number: ClassIx, nodes: &[NodeIx], coming: bool) {
        let cluster = self.cluster;
        let mut domains: Vec<(Vec<Option<Sym>>, VecDeque<NodeIx>)> = Vec::new();
        for node in nodes.iter().filter(|node| self.is_open(number, **node, coming)) {
            let spreads = groups.of[number].spreads.iter();
            let values: Vec<_> =
                spreads.map(|rule| node_domain(cluster, *node, groups.list[rule.group].key)).collect();
            match domains.iter_mut().find(|(known, _)| *known == values) {
                Some((_, list)) => list.push_back(*node),
                None => domains.push((values, VecDeque::from([*node]))),
            }
        }
        while self.left[number] > 0 {
            let there = |values: &[Option<Sym>]| -> i64 {
                let rules = groups.of[number].spreads.iter().zip(values);
                rules.map(|(rule, value)| groups.list[rule.group].count_in(*value)).sum()
            };
            let mut order: Vec<_> =
                domains.iter_mut().map(|(values, list)| (there(values), values, list)).collect();
            order.sort_by_key(|(count, ..)| *count);
            let mut placed = 0;
            for (_, values, list) in order {
                if !is_within_skew(groups, number, values) {
                    continue;
                }
                // A node that refuses although its domain allows the pod is full.
                while let Some(node) = list.pop_front() {
                    self.steps += 1;
                    placed = self.put(groups, number, node, 1);
                    if placed > 0 {
                        list.push_back(node);
                        self.record(number, node, placed);
                        break;
                    }
                }
                if placed > 0 {
                    break;
                }
            }
            if placed == 0 {
                return;
            }
        }
    }

    /// Nodes by the class's preferences, best first; otherwise unchanged.
    fn by_preference(
        &mut self,
        class: &Class,
        nodes: &Arc<[NodeIx]>,
        has_preferences: bool,
    ) -> Arc<[NodeIx]> {
        let cluster = self.cluster;
        let shape = class.shape(cluster);
        if shape.preferred_nodes.is_empty() && !has_preferences {
            return Arc::clone(nodes);
        }
        let tables = &cluster.tables;
        let mut list = nodes.to_vec();
        list.sort_by_cached_key(|ix| {
            let slot = &cluster.nodes[*ix];
            let labels = slot.info.as_ref().map_or(&[][..], |i| &i.labels);
            let weight = |(weight, term): &(i32, Term)| {
                if term.matches(&tables.symbols, labels, Some(slot.name)) { i64::from(*weight) } else { 0 }
            };
            let node: i64 = shape.preferred_nodes.iter().map(weight).sum();
            let pods = if has_preferences {
                self.preference_counts
                    .score(cluster, self.demand, class, |key| preferences::domain(cluster, *ix, key))
            } else {
                0
            };
            Reverse(node.saturating_add(pods))
        });
        list.into()
    }

    /// True if a class that others need may go onto `node`: each follower still has room there, or beside another of its
    /// affinity targets.
    fn has_room_for_followers(&self, groups: &Groups, number: ClassIx, node: NodeIx) -> bool {
        let (cluster, demand) = (self.cluster, self.demand);
        for other in &self.followers[number] {
            let class = &demand.classes[*other];
            let Some(group) = groups.of[*other].host_affinity else { continue };
            if self.left[*other] == 0 || class.blocked.is_some() {
                continue;
            }
            let nodes = self.suitable(class);
            let requests = &class.shape(cluster).requests;
            let own = &demand.classes[number].shape(cluster).requests;
            let takes = |other: NodeIx| {
                let beside = if other == node { &own[..] } else { &[] };
                self.has_room(other, requests, beside) && nodes.contains(&other)
            };
            let affinity_targets = groups.list[group].nodes.iter().filter(|(_, pods)| pods.matching > 0);
            if !takes(node) && !affinity_targets.into_iter().any(|(other, _)| takes(*other)) {
                return false;
            }
        }
        true
    }

    /// Free resources of a node, less what is planned onto it; `None` without such a node.
    pub(super) fn free(&self, node: NodeIx) -> Option<&IndexVec<ResourceId, i64>> {
        match self.places.get(&node) {
            Some(place) => Some(&place.free),
            None => self.cache.room(self.cluster, node).map(|room| &room.free),
        }
    }

    pub(super) fn has_room(
        &self,
        node: NodeIx,
        requests: &[(ResourceId, i64)],
        and: &[(ResourceId, i64)],
    ) -> bool {
        let Some(free) = self.free(node) else { return false };
        requests.iter().all(|(id, size)| {
            let free = free.find(*id).copied().unwrap_or(0);
            free >= size.saturating_add(amount(and, *id))
        })
    }

    /// False if the node has no room for `requests` in any case. Most nodes are full: they cost no more than this, and no copy.
    fn may_take(&self, node: NodeIx, requests: &[(ResourceId, i64)]) -> bool {
        if self.places.contains_key(&node) {
            return true;
        }
        let Some(slot) = self.cluster.nodes.find(node) else { return false };
        let Some(info) = &slot.info else { return false };
        let free = |id: ResourceId| amount(&info.allocatable, id).saturating_sub(slot.used(id));
        requests.iter().all(|(id, size)| free(*id) >= *size)
    }

    /// Places as many of the class onto `node` as fit and its rules allow now; returns how many.
    pub(super) fn put(&mut self, groups: &mut Groups, number: ClassIx, node: NodeIx, limit: u32) -> u32 {
        let (cluster, demand) = (self.cluster, self.demand);
        let class = &demand.classes[number];
        let shape = class.shape(cluster);
        if !self.may_take(node, &shape.requests) {
            return 0;
        }
        let unrestricted = self.restraint.unrestricted.contains(&number);
        let violates = self.may_exclude_planned(groups, number, node);
        let strands =
            || !self.followers[number].is_empty() && !self.has_room_for_followers(groups, number, node);
        if !unrestricted && (violates || strands()) {
            self.held.insert(number);
            return 0;
        }
        let place = match self.places.entry(node) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(entry) => {
                let Some(room) = self.cache.room(cluster, node) else { return 0 };
                entry.insert(Place::new(node, room))
            }
        };
        let mut most = limit.min(room_for(cluster, &demand.attach_limits, place, class));
        if most == 0 {
            return 0;
        }
        let hosts = &mut self.hosts;
        let least = |rule: &SpreadRule| hosts.least(cluster, demand, groups, rule, node);
        most = most.min(host_room(cluster, groups, number, place, least));
        if groups.of[number].is_constrained()
            || groups.of[number].needs_domain()
            || !self.followers[number].is_empty()
        {
            most = most.min(1);
        }
        if most == 0 || !is_domain_open(cluster, groups, number, node) {
            return 0;
        }
        place.take(number, class, shape, most);
        if violates {
            self.violating.extend((0..most).map(|_| (number, node)));
        }
        self.count(groups, number, node, i64::from(most));
        most
    }

    /// Counts pods that are planned onto `node` in their groups.
    fn count(&mut self, groups: &mut Groups, number: ClassIx, node: NodeIx, count: i64) {
        let cluster = self.cluster;
        let topology = groups.of[number].clone();
        for g in &topology.host_matching_groups {
            let group = &mut groups.list[*g];
            let matching = &mut group.nodes.entry(node).or_default().matching;
            self.hosts.add(cluster, *g, group.filter, PlannedPods { node, before: *matching, count });
            *matching += count;
            group.total += count;
        }
        for g in &topology.host_anti_affinity {
            groups.list[*g].nodes.entry(node).or_default().repelling += count;
        }
        self.count_in_domains(groups, &topology.matching_groups, node, count);
        for g in &topology.anti_affinity {
            if let Some(value) = node_domain(cluster, node, groups.list[*g].key) {
                groups.list[*g].domain(value).pods.repelling += count;
            }
        }
        for rule in &topology.spreads {
            let Some(value) = node_domain(cluster, node, groups.list[rule.group].key) else { continue };
            let held = self.spreads.entry((rule.group, value)).or_insert(*rule);
            held.max_skew = held.max_skew.min(rule.max_skew);
        }
    }

    /// Counts `count` more pods of the class on `node` in the spreads that they may have to leave room in. They
    /// satisfy no affinity and violate no anti-affinity yet.
    fn reserve(&self, groups: &mut Groups, number: ClassIx, node: NodeIx, count: i64) {
        let counted = groups.of[number].matching_groups.iter().copied();
        let spreads: Vec<GroupIx> = counted.filter(|g| groups.list[*g].filter.is_some()).collect();
        self.count_in_domains(groups, &spreads, node, count);
    }

    /// Counts pods on `node` in the domains of these groups.
    fn count_in_domains(&self, groups: &mut Groups, counted: &[GroupIx], node: NodeIx, count: i64) {
        for g in counted {
            let group = &mut groups.list[*g];
            if group.filter.is_none_or(|f| is_eligible(self.cluster, f, node))
                && let Some(value) = node_domain(self.cluster, node, group.key)
            {
                group.domain(value).pods.matching += count;
                group.total += count;
            }
        }
    }

    /// True if one more pod of the class on `node`, bound first, would keep out pods that are planned into
    /// its domain.
    fn may_exclude_planned(&self, groups: &Groups, number: ClassIx, node: NodeIx) -> bool {
        let cluster = self.cluster;
        !self.spreads.is_empty()
            && groups.of[number].matching_groups.iter().any(|g| {
                let group = &groups.list[*g];
                let Some(value) = node_domain(cluster, node, group.key) else { return false };
                let Some(rule) = self.spreads.get(&(*g, value)) else { return false };
                group.filter.is_none_or(|f| is_eligible(cluster, f, node))
                    && group.count_in(Some(value)) + 1 - groups.min_count_now(rule) > rule.max_skew
            })
    }
}

/// Runs of equal values with their lengths.
fn runs(classes: &[ClassIx]) -> impl Iterator<Item = (ClassIx, u32)> {
    classes.chunk_by(|a, b| a == b).filter_map(|run| Some((*run.first()?, u32::try_from(run.len()).ok()?)))
}

/// By class: classes that need a pod of it on their host and can't start a host themselves.
fn followers(groups: &Groups) -> IndexVec<ClassIx, Vec<ClassIx>> {
    let mut result = IndexVec::filled(Vec::new(), groups.of.len());
    let mut waiting: FxHashMap<GroupIx, Vec<ClassIx>> = FxHashMap::default();
    for (class, topology) in groups.of.enumerate().filter(|(_, t)| !t.may_be_first) {
        if let Some(group) = topology.host_affinity {
            waiting.entry(group).or_default().push(class);
        }
    }
    for (class, topology) in groups.of.enumerate().filter(|_| !waiting.is_empty()) {
        for group in &topology.host_matching_groups {
            result[class].extend(waiting.get(group).into_iter().flatten().filter(|other| **other != class));
        }
    }
    result
}

/// Classes that need affinity to their own kind while pods of another class, of no lower priority, are of that kind, too.
/// They are planned after those: kube-scheduler may bind the others first, and then these must be beside them.
fn startable_beside_others(groups: &Groups, demand: &Demand) -> BTreeSet<ClassIx> {
    let needed = |class: ClassIx| groups.of[class].affinity.iter().chain(&groups.of[class].host_affinity);
    let open = |class: ClassIx| demand.classes[class].blocked.is_none();
    let is_target = |class: ClassIx, other: ClassIx| {
        let there = &groups.of[other];
        other != class
            && open(other)
            && demand.classes[other].priority >= demand.classes[class].priority
            && needed(class)
                .any(|g| there.matching_groups.contains(g) || there.host_matching_groups.contains(g))
    };
    let starting =
        groups.of.enumerate().filter(|(_, topology)| topology.may_be_first).map(|(class, _)| class);
    starting.filter(|class| demand.classes.ids().any(|other| is_target(*class, other))).collect()
}

/// How many pods of the class the rest of a node holds, by its own resources, ports, volumes and labels.
fn room_for(cluster: &Cluster, limits: &AttachLimits, place: &Place, class: &Class) -> u32 {
    let shape = class.shape(cluster);
    let mut most = u32::MAX;
    for (id, size) in &shape.requests {
        let free = place.free.find(*id).copied().unwrap_or(0);
        if free < *size {
            return 0;
        }
        most = most.min(u32::try_from(free / size).unwrap_or(u32::MAX));
    }
    if !shape.ports.is_empty() {
        if shape.ports.iter().any(|p| place.ports.iter().any(|q| p.conflicts(q))) {
            return 0;
        }
        most = most.min(1);
    }
    if !class.claims.is_empty() {
        if !may_attach(cluster, limits, place, class) {
            return 0;
        }
        most = most.min(1);
    }
    let Some(slot) = cluster.nodes.find(place.node) else { return 0 };
    let named = |r: &NodeReq| {
        let info = slot.info.as_ref();
        info.is_some_and(|i| r.matches(&cluster.tables.symbols, &i.labels, Some(slot.name)))
    };
    if class.extra.iter().all(named) { most } else { 0 }
}

/// True if the node can attach the class's volumes as well.
fn may_attach(cluster: &Cluster, limits: &AttachLimits, place: &Place, class: &Class) -> bool {
    let driver = |claim: &NamespacedName| cluster.volumes.driver(*claim);
    let new = class.claims.iter().filter(|claim| !place.claims.contains(claim));
    let drivers: BTreeSet<Sym> = new.filter_map(driver).collect();
    if drivers.is_empty() {
        return true;
    }
    let all: FxHashSet<&NamespacedName> = place.claims.iter().chain(&class.claims).collect();
    drivers.into_iter().all(|wanted| {
        let count = all.iter().filter(|claim| driver(claim) == Some(wanted)).count();
        i64::try_from(count).unwrap_or(i64::MAX) <= limits.of_node(cluster, place.node, wanted)
    })
}
