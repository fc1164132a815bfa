//! Places on nodes that are there or coming, before any machine is launched.

mod emptiest;
mod rules;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque, hash_map::Entry},
    sync::Arc,
};

use rules::{domain_allows, host_room, spreads_allow};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    cluster::{Cluster, NodeIx},
    demand::{Class, Demand},
    groups::{Groups, SpreadRule, candidates, eligible, node_domain},
    intern::Sym,
    options::Options,
    requests::{Port, RES_PODS, amount},
    soft::{self, Tally},
    taint,
    warm::Warm,
};

/// What is free on a node, before anything is planned onto it.
#[derive(Debug)]
pub(crate) struct Room {
    /// By resource number.
    free: Vec<i64>,
    ports: Vec<Port>,
    claims: Vec<(Sym, Sym)>,
}

/// What is left of a node, while pods are planned onto it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) node: NodeIx,
    /// By resource number.
    free: Vec<i64>,
    ports: Vec<Port>,
    claims: Vec<(Sym, Sym)>,
    /// (class, how many).
    pub(crate) content: Vec<(usize, u32)>,
}

/// Requirements and tolerations, by number.
pub(crate) type Needs = (Arc<[u32]>, u32);

/// Plans pods onto nodes that are there, then onto those on their way.
pub(crate) struct Existing<'a> {
    cluster: &'a Cluster,
    demand: &'a Demand,
    places: FxHashMap<NodeIx, Place>,
    warm: &'a Warm,
    /// Nodes that classes are kept from.
    ruled_out: FxHashSet<(usize, NodeIx)>,
    /// Each pod goes to the emptiest node.
    as_bound: bool,
    tally: Tally,
    /// Of each class: others that must be on the host of one of it.
    followers: Vec<Vec<usize>>,
    /// Spreads of those who are planned already, by group and domain.
    spreads: FxHashMap<(usize, Sym), SpreadRule>,
    /// Classes that look after nobody else.
    heedless: &'a BTreeSet<usize>,
    /// Classes that were kept from some node for the sake of others.
    held: BTreeSet<usize>,
    /// Pods left of each class.
    pub(crate) left: Vec<u32>,
    pub(crate) steps: u64,
}

#[expect(clippy::indexing_slicing, reason = "class and group numbers come from the lists that they index")]
impl<'a> Existing<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        demand: &'a Demand,
        options: &Options,
        heedless: &'a BTreeSet<usize>,
        warm: &'a Warm,
    ) -> Self {
        let ruled_out = options
            .ruled_out
            .iter()
            .filter_map(|(pod, node)| Some((demand.class_of(cluster, pod)?, cluster.find_node(node)?)))
            .collect();
        Self {
            ruled_out,
            as_bound: options.as_bound,
            cluster,
            demand,
            places: FxHashMap::default(),
            warm,
            tally: Tally::default(),
            followers: Vec::new(),
            spreads: FxHashMap::default(),
            heedless,
            held: BTreeSet::new(),
            left: demand.classes.iter().map(|c| u32::try_from(c.pods.len()).unwrap_or(u32::MAX)).collect(),
            steps: 0,
        }
    }

    /// Places what fits. A pod that needs another one near may become placeable by it, so that rounds repeat until
    /// none helps.
    pub(crate) fn run(&mut self, groups: &mut Groups) {
        if self.cluster.nodes.iter().all(|slot| slot.info.is_none()) {
            return;
        }
        self.followers = followers(groups);
        if self.as_bound {
            groups.see_coming(self.cluster);
            for (class, count) in runs(&self.demand.turns) {
                if self.left[class] > 0 && self.demand.classes[class].blocked.is_none() {
                    self.class(groups, class, false, count);
                }
            }
        }
        for coming in [false, true] {
            if coming {
                let mut nodes = self.cluster.nodes.iter().filter_map(|slot| slot.info.as_ref());
                if self.as_bound || !nodes.any(|info| info.coming) {
                    return;
                }
                groups.see_coming(self.cluster);
            }
            let mut again = false;
            loop {
                let before: u64 = self.left.iter().map(|n| u64::from(*n)).sum();
                for class in 0..self.demand.classes.len() {
                    // Room only shrinks: what was placed can help those alone whom it keeps even or near.
                    let worth_it = !again || groups.of[class].bound() || groups.of[class].host_near.is_some();
                    if worth_it && self.left[class] > 0 && self.demand.classes[class].blocked.is_none() {
                        self.class(groups, class, coming, u32::MAX);
                    }
                }
                let after: u64 = self.left.iter().map(|n| u64::from(*n)).sum();
                let waiting =
                    |c: usize| self.left[c] > 0 && (groups.of[c].bound() || groups.of[c].host_near.is_some());
                if after == before || !(0..self.left.len()).any(waiting) {
                    break;
                }
                again = true;
            }
        }
    }

    /// Classes that were kept from old nodes for the sake of others, and those who were to follow each.
    pub(crate) fn held(&self) -> Vec<(usize, Vec<usize>)> {
        self.held.iter().map(|class| (*class, self.followers[*class].clone())).collect()
    }

    /// The places that got pods, by node number.
    pub(crate) fn finish(self) -> Vec<Place> {
        let mut places: Vec<Place> = self.places.into_values().filter(|p| !p.content.is_empty()).collect();
        places.sort_unstable_by_key(|p| p.node);
        places
    }

    /// Nodes that labels and taints allow, those left out included.
    fn suitable(&self, class: &Class) -> Arc<[NodeIx]> {
        let cluster = self.cluster;
        let shape = class.shape(cluster);
        let key = (Arc::clone(&class.reqs), shape.tolerations);
        self.warm.suitable(&key, || {
            let tables = &cluster.tables;
            let tolerations = tables.tolerations.get(shape.tolerations);
            let mut list: Vec<NodeIx> = candidates(cluster, &class.reqs)
                .into_iter()
                .filter(|ix| {
                    let slot = &cluster.nodes[*ix as usize];
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
                let slot = &cluster.nodes[*ix as usize];
                let soft = slot.info.as_ref().is_some_and(|i| taint::discouraged(tolerations, &i.taints));
                (soft, tables.symbols.text(slot.name))
            });
            list.into()
        })
    }

    fn class(&mut self, groups: &mut Groups, number: usize, coming: bool, most: u32) {
        let demand = self.demand;
        let class = &demand.classes[number];
        let nodes = self.suitable(class);
        let wishes = soft::wishes(self.cluster, class).next().is_some();
        let evenly = !groups.of[number].spreads.is_empty();
        let prefers = wishes || !class.shape(self.cluster).preferred_nodes.is_empty();
        if evenly && !prefers {
            self.evenly(groups, number, &nodes, coming);
            return;
        }
        if self.as_bound && !prefers {
            self.emptiest(groups, number, &nodes, most);
            return;
        }
        // One at a time where domains count, and where each changes what the next one wishes.
        let one_by_one = evenly || soft::shuns_itself(self.cluster, class);
        loop {
            let before = self.left[number];
            let order = self.by_preference(class, &nodes, wishes);
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
                    self.note(number, *node, placed);
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
    fn is_open(&self, number: usize, node: NodeIx, coming: bool) -> bool {
        let info = self.cluster.nodes[node as usize].info.as_ref();
        let shut = self.demand.gone.contains(&node) || self.ruled_out.contains(&(number, node));
        !shut && info.is_some_and(|i| self.as_bound || i.coming == coming)
    }

    fn note(&mut self, number: usize, node: NodeIx, placed: u32) {
        self.left[number] -= placed;
        let (cluster, demand) = (self.cluster, self.demand);
        self.tally.note(&demand.classes[number], placed, |key| soft::domain(cluster, node, key));
    }

    /// Puts pods one by one where there are fewest of them: the more even they are, the more of them can be nominated at
    /// the same time, and one that isn't takes the room of who comes after it.
    fn evenly(&mut self, groups: &mut Groups, number: usize, nodes: &[NodeIx], coming: bool) {
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
            let mut order: Vec<(i64, usize)> =
                domains.iter().enumerate().map(|(at, (values, _))| (there(values), at)).collect();
            order.sort_unstable();
            let mut placed = 0;
            for (_, at) in order {
                let (values, list) = &mut domains[at];
                if !spreads_allow(groups, number, values) {
                    continue;
                }
                // Who refuses though its domain doesn't is full.
                while let Some(node) = list.pop_front() {
                    self.steps += 1;
                    placed = self.put(groups, number, node, 1);
                    if placed > 0 {
                        list.push_back(node);
                        self.note(number, node, placed);
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

    /// Nodes by what the class prefers, best first; otherwise as they are.
    fn by_preference(&mut self, class: &Class, nodes: &Arc<[NodeIx]>, wishes: bool) -> Arc<[NodeIx]> {
        let cluster = self.cluster;
        let shape = class.shape(cluster);
        if shape.preferred_nodes.is_empty() && !wishes {
            return Arc::clone(nodes);
        }
        let tables = &cluster.tables;
        let mut list = nodes.to_vec();
        list.sort_by_cached_key(|ix| {
            let slot = &cluster.nodes[*ix as usize];
            let labels = slot.info.as_ref().map_or(&[][..], |i| &i.labels);
            let weight = |(weight, term): &(i32, crate::nodereq::Term)| {
                if term.matches(&tables.symbols, labels, Some(slot.name)) { i64::from(*weight) } else { 0 }
            };
            let node: i64 = shape.preferred_nodes.iter().map(weight).sum();
            let pods = if wishes {
                self.tally.score(cluster, self.demand, class, |key| soft::domain(cluster, *ix, key))
            } else {
                0
            };
            Reverse(node.saturating_add(pods))
        });
        list.into()
    }

    /// True if a class that others wait for may go onto `node`: each of them has a mate with room beside it already, or
    /// would have room there.
    fn leads(&mut self, groups: &Groups, number: usize, node: NodeIx) -> bool {
        let (cluster, demand) = (self.cluster, self.demand);
        for other in self.followers[number].clone() {
            let class = &demand.classes[other];
            let Some(group) = groups.of[other].host_near else { continue };
            if self.left[other] == 0 || class.blocked.is_some() {
                continue;
            }
            let nodes = self.suitable(class);
            let requests = &class.shape(cluster).requests;
            let mates = groups.list[group].nodes.iter().filter(|(_, (count, _))| *count > 0);
            if mates.into_iter().any(|(at, _)| nodes.contains(at) && self.has_room(*at, requests, &[])) {
                continue;
            }
            let own = &demand.classes[number].shape(cluster).requests;
            if !nodes.contains(&node) || !self.has_room(node, requests, own) {
                return false;
            }
        }
        true
    }

    /// What is free on a node by resource number, with what is planned onto it; None without such a node.
    fn free(&self, node: NodeIx) -> Option<&[i64]> {
        match self.places.get(&node) {
            Some(place) => Some(&place.free),
            None => self.warm.room(self.cluster, node).map(|room| room.free.as_slice()),
        }
    }

    fn has_room(&self, node: NodeIx, requests: &[(u32, i64)], and: &[(u32, i64)]) -> bool {
        let Some(free) = self.free(node) else { return false };
        requests.iter().all(|(id, size)| {
            let free = free.get(*id as usize).copied().unwrap_or(0);
            free >= size.saturating_add(amount(and, *id))
        })
    }

    /// Puts as many of the class onto `node` as fit and its rules allow at this moment; answers how many.
    fn put(&mut self, groups: &mut Groups, number: usize, node: NodeIx, limit: u32) -> u32 {
        let (cluster, demand) = (self.cluster, self.demand);
        let class = &demand.classes[number];
        let shape = class.shape(cluster);
        // Most nodes are full: they are passed without a copy, the fullest before anything else is counted.
        if !self.places.contains_key(&node) && !may_hold(cluster, node, &shape.requests) {
            return 0;
        }
        if !self.heedless.contains(&number)
            && (!self.followers[number].is_empty() && !self.leads(groups, number, node)
                || self.breaks(groups, number, node))
        {
            self.held.insert(number);
            return 0;
        }
        let place = match self.places.entry(node) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(entry) => {
                let Some(room) = self.warm.room(cluster, node).filter(|r| r.holds(&shape.requests)) else {
                    return 0;
                };
                entry.insert(Place::new(node, room))
            }
        };
        let mut most = limit;
        for (id, size) in &shape.requests {
            let free = place.free.get(*id as usize).copied().unwrap_or(0);
            if free < *size {
                return 0;
            }
            most = most.min(u32::try_from(free / size).unwrap_or(u32::MAX));
        }
        if !shape.ports.is_empty() {
            if shape.ports.iter().any(|p| place.ports.iter().any(|q| p.conflicts(q))) {
                return 0;
            }
            most = 1;
        }
        if !class.claims.is_empty() {
            if !attaches(cluster, place, class) {
                return 0;
            }
            most = 1;
        }
        let slot = &cluster.nodes[node as usize];
        let named = |r: &crate::nodereq::NodeReq| {
            let info = slot.info.as_ref();
            info.is_some_and(|i| r.matches(&cluster.tables.symbols, &i.labels, Some(slot.name)))
        };
        if !class.extra.iter().all(named) {
            return 0;
        }
        most = most.min(host_room(cluster, groups, number, place));
        if groups.of[number].bound() || groups.of[number].chooses() || !self.followers[number].is_empty() {
            most = most.min(1);
        }
        if most == 0 || !domain_allows(cluster, groups, number, node) {
            return 0;
        }
        for (id, size) in &shape.requests {
            if let Some(free) = place.free.get_mut(*id as usize) {
                *free -= size.saturating_mul(i64::from(most));
            }
        }
        place.ports.extend(&shape.ports);
        place.claims.extend(&class.claims);
        match place.content.iter_mut().find(|(c, _)| *c == number) {
            Some((_, n)) => *n += most,
            None => place.content.push((number, most)),
        }
        let count = i64::from(most);
        let topology = groups.of[number].clone();
        for g in &topology.host_counted {
            groups.list[*g].nodes.entry(node).or_default().0 += count;
            groups.list[*g].total += count;
        }
        for g in &topology.host_anti {
            groups.list[*g].nodes.entry(node).or_default().1 += count;
        }
        for g in &topology.counted {
            if groups.list[*g].filter.is_none_or(|f| eligible(cluster, f, node))
                && let Some(value) = node_domain(cluster, node, groups.list[*g].key)
            {
                groups.list[*g].domain(value).count += count;
                groups.list[*g].total += count;
            }
        }
        for g in &topology.anti {
            if let Some(value) = node_domain(cluster, node, groups.list[*g].key) {
                groups.list[*g].domain(value).holds += count;
            }
        }
        for rule in &topology.spreads {
            let Some(value) = node_domain(cluster, node, groups.list[rule.group].key) else { continue };
            let held = self.spreads.entry((rule.group, value)).or_insert(*rule);
            held.max_skew = held.max_skew.min(rule.max_skew);
        }
        most
    }

    /// True if one more of the class on `node` would keep out pods that are planned into its domain, were it bound before
    /// them.
    fn breaks(&self, groups: &Groups, number: usize, node: NodeIx) -> bool {
        let cluster = self.cluster;
        !self.spreads.is_empty()
            && groups.of[number].counted.iter().any(|g| {
                let group = &groups.list[*g];
                let Some(value) = node_domain(cluster, node, group.key) else { return false };
                let Some(rule) = self.spreads.get(&(*g, value)) else { return false };
                group.filter.is_none_or(|f| eligible(cluster, f, node))
                    && group.count_in(Some(value)) + 1 - groups.least_now(rule) > rule.max_skew
            })
    }
}

/// Numbers, and how often each comes before another one does.
fn runs(numbers: &[usize]) -> impl Iterator<Item = (usize, u32)> {
    numbers.chunk_by(|a, b| a == b).filter_map(|run| Some((*run.first()?, u32::try_from(run.len()).ok()?)))
}

/// Of each class: others that must be on the host of one of it, and can't be the first there themselves.
#[expect(clippy::indexing_slicing, reason = "class numbers come from the list")]
fn followers(groups: &Groups) -> Vec<Vec<usize>> {
    let mut result = vec![Vec::new(); groups.of.len()];
    let mut waiting: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for (class, topology) in groups.of.iter().enumerate().filter(|(_, t)| !t.starts) {
        if let Some(group) = topology.host_near {
            waiting.entry(group).or_default().push(class);
        }
    }
    for (class, topology) in groups.of.iter().enumerate().filter(|_| !waiting.is_empty()) {
        for group in &topology.host_counted {
            result[class].extend(waiting.get(group).into_iter().flatten().filter(|other| **other != class));
        }
    }
    result
}

/// False if the node has no room for `requests` whatever else is so: most nodes are full, and cost no more than this.
fn may_hold(cluster: &Cluster, node: NodeIx, requests: &[(u32, i64)]) -> bool {
    let Some(slot) = cluster.nodes.get(node as usize) else { return false };
    let Some(info) = &slot.info else { return false };
    requests.iter().all(|(id, size)| amount(&info.allocatable, *id).saturating_sub(slot.used(*id)) >= *size)
}

impl Room {
    #[expect(clippy::indexing_slicing, reason = "node numbers come from the cluster")]
    pub(crate) fn new(cluster: &Cluster, node: NodeIx) -> Self {
        let slot = &cluster.nodes[node as usize];
        let mut free = vec![0i64; cluster.tables.resources.len()];
        if let Some(info) = &slot.info {
            for (id, value) in &info.allocatable {
                if let Some(f) = free.get_mut(*id as usize) {
                    *f = *value;
                }
            }
        }
        for (id, f) in free.iter_mut().enumerate() {
            *f = f.saturating_sub(slot.used(u32::try_from(id).unwrap_or(u32::MAX)));
        }
        let mut ports = slot.ports.clone();
        for (key, daemon) in &cluster.daemons {
            if slot.daemons.contains(key) || !daemon_runs(cluster, daemon.shape, node) {
                continue;
            }
            let shape = cluster.tables.shapes.get(daemon.shape);
            for (id, size) in &shape.requests {
                if let Some(f) = free.get_mut(*id as usize) {
                    *f = f.saturating_sub(*size);
                }
            }
            ports.extend(&shape.ports);
        }
        if free.get(RES_PODS as usize).is_some_and(|f| *f < 0) {
            free[RES_PODS as usize] = 0;
        }
        Self { free, ports, claims: slot.claims.clone() }
    }

    fn holds(&self, requests: &[(u32, i64)]) -> bool {
        requests.iter().all(|(id, size)| self.free.get(*id as usize).copied().unwrap_or(0) >= *size)
    }
}

impl Place {
    fn new(node: NodeIx, room: &Room) -> Self {
        let Room { free, ports, claims } = room;
        Self { node, free: free.clone(), ports: ports.clone(), claims: claims.clone(), content: Vec::new() }
    }
}

/// True if a DaemonSet's pod belongs on `node`.
fn daemon_runs(cluster: &Cluster, shape: u32, node: NodeIx) -> bool {
    let Some(slot) = cluster.nodes.get(node as usize) else { return false };
    let Some(info) = &slot.info else { return false };
    let tables = &cluster.tables;
    let shape = tables.shapes.get(shape);
    shape.reqs.iter().all(|r| tables.reqs.get(*r).matches(&tables.symbols, &info.labels, Some(slot.name)))
        && taint::untolerated(tables.tolerations.get(shape.tolerations), &info.taints).is_none()
}

/// True if the node can attach the class's volumes too.
fn attaches(cluster: &Cluster, place: &Place, class: &Class) -> bool {
    let Some(slot) = cluster.nodes.get(place.node as usize) else { return false };
    let Some(limits) = cluster.volumes.limits.get(&slot.name) else { return true };
    let mut all = place.claims.clone();
    all.extend(&class.claims);
    all.sort_unstable();
    all.dedup();
    limits.iter().all(|(driver, limit)| {
        let count = all.iter().filter(|c| cluster.volumes.driver(**c) == Some(*driver)).count();
        i64::try_from(count).unwrap_or(i64::MAX) <= *limit
    })
}
