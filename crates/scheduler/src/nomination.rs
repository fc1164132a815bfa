//! Which pods of a plan must be nominated to their node, and which nominations are compatible.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    ids::NodeIx,
    model::{plan::PodKey, requirement::Operator},
    state::{
        cluster::Cluster,
        interner::Sym,
        node_requirement::Expr,
        pod::{PodRec, QueueRank},
        pod_shape::{FilterId, IdentId, PodAffinity, SelectorId, Shape, ShapeId, Spread},
        taint,
    },
    topology::groups::{is_eligible, node_domain},
};

/// The node that pods are nominated to.
#[derive(Clone, Copy)]
struct Target<'a> {
    labels: &'a BTreeMap<String, String>,
    /// All pods that are planned for it.
    pods: &'a FxHashSet<&'a PodKey>,
}

/// The pods that a spread counts, and the domains that it compares.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SpreadScope {
    selector: SelectorId,
    key: Sym,
    filter: FilterId,
}

impl SpreadScope {
    fn of(spread: &Spread) -> Self {
        let Spread { selector, key, filter, .. } = *spread;
        Self { selector, key, filter }
    }
}

/// A pod planned for a node.
struct Planned<'c, 'p> {
    rec: &'c PodRec,
    key: &'p PodKey,
    /// Its required affinity is satisfied by bound pods, or it has none.
    met: bool,
}

impl Cluster {
    /// Of the pods planned for one node, those that may have it as `status.nominatedNodeName` at the same
    /// time.
    ///
    /// kube-scheduler tries a pod's nominated node with all other pods nominated to it counted as if they ran
    /// there, but counts no pod that is nominated elsewhere (RunFilterPluginsWithNominatedPods). Two pods
    /// that must spread over zones, both planned for a node of one zone, would keep each other out for ever.
    #[must_use]
    pub fn nominable<'p>(&self, pods: &'p [PodKey], labels: &BTreeMap<String, String>) -> Vec<&'p PodKey> {
        let found = |key: &'p PodKey| {
            let ix = self.pod_numbers.get(key)?;
            Some((self.pods.find(*ix)?.as_ref()?, key))
        };
        let mut known: FxHashMap<(SelectorId, Sym), bool> = FxHashMap::default();
        let mut pods: Vec<Planned<'_, 'p>> = pods
            .iter()
            .filter_map(found)
            .map(|(rec, key)| Planned { rec, key, met: self.is_met(rec, labels, &mut known) })
            .collect();
        // In binding order: a pod without a nomination takes what it finds, so that it should be the last
        // one. A pod whose required affinity no bound pod satisfies comes after all others, whatever its
        // priority.
        pods.sort_by_key(|pod| (!pod.met, pod.rec.rank()));
        let here: FxHashSet<&PodKey> = pods.iter().map(|pod| pod.key).collect();
        let target = Target { labels, pods: &here };
        let mut chosen: Vec<Planned<'_, 'p>> = Vec::new();
        let mut known = Known::default();
        for pod in pods {
            chosen.push(pod);
            if !self.is_within_skew(&chosen, target, &mut known) {
                chosen.pop();
            }
        }
        chosen.into_iter().map(|pod| pod.key).collect()
    }

    /// True if the plan for one node needs no nominations: its pods are interchangeable, only resources,
    /// labels and taints decide where they go, and no other pending pod may go there. Whichever of them
    /// kube-scheduler binds there, the others have room elsewhere, as planned. That saves two writes per pod.
    #[must_use]
    pub fn interchangeable(&self, pods: &[PodKey]) -> bool {
        let found = |key: &PodKey| self.pod_numbers.get(key).and_then(|ix| self.pods.find(*ix)?.as_ref());
        let Some((shape, node)) = pods.first().and_then(found).and_then(|rec| Some((rec.shape, rec.node?)))
        else {
            return false;
        };
        if !self.tables.shapes.get(shape).needs_only_room()
            || !pods.iter().all(|key| found(key).is_some_and(|r| r.shape == shape))
        {
            return false;
        }
        let mut enters: FxHashMap<ShapeId, bool> = FxHashMap::default();
        let waiting = self.pods.iter().flatten().filter(|rec| rec.node.is_none() || rec.nominated);
        waiting
            .filter(|rec| rec.is_movable() && rec.shape != shape)
            .all(|rec| !*enters.entry(rec.shape).or_insert_with(|| self.may_enter_node(node, rec.shape)))
    }

    /// True if two pending pods are the same to every constraint, their own and others': either may take the
    /// other's place.
    #[must_use]
    pub fn alike(&self, one: &PodKey, other: &PodKey) -> bool {
        let traits = |key: &PodKey| {
            let rec = self.pods.find(*self.pod_numbers.get(key)?)?.as_ref()?;
            Some((rec.shape, rec.ident, rec.priority))
        };
        traits(one).is_some_and(|held| traits(other) == Some(held))
    }

    /// True if the node's labels and taints admit such pods.
    fn may_enter_node(&self, node: NodeIx, shape: ShapeId) -> bool {
        let Some(slot) = self.nodes.find(node) else { return true };
        let Some(info) = &slot.info else { return true };
        let (tables, shape) = (&self.tables, self.tables.shapes.get(shape));
        shape.reqs.iter().all(|r| tables.reqs.get(*r).matches(&tables.symbols, &info.labels, Some(slot.name)))
            && taint::untolerated(tables.tolerations.get(shape.tolerations), &info.taints).is_none()
    }

    /// True if a bound pod satisfies the required affinity in the domains that `labels` give, or if there is
    /// none.
    fn is_met(
        &self,
        rec: &PodRec,
        labels: &BTreeMap<String, String>,
        known: &mut FxHashMap<(SelectorId, Sym), bool>,
    ) -> bool {
        let Some(affinity) = &self.tables.shapes.get(rec.shape).affinity else { return true };
        let PodAffinity { selector, keys } = affinity;
        keys.iter().all(|key| {
            let key = self.keys.canonical(*key);
            *known.entry((*selector, key)).or_insert_with(|| {
                let Some(here) = self.domain_of(labels, key) else { return false };
                let mut selected = FxHashMap::default();
                let mut some = |node| self.bound_on(node, *selector, &mut selected) > 0;
                if key == self.keys.hostname {
                    return self.find_node(self.tables.symbols.text(here)).is_some_and(some);
                }
                self.nodes.ids().filter(|node| node_domain(self, *node, key) == Some(here)).any(&mut some)
            })
        })
    }

    /// The value of `key` (canonical) among a node's labels.
    fn domain_of(&self, labels: &BTreeMap<String, String>, key: Sym) -> Option<Sym> {
        let symbols = &self.tables.symbols;
        let is_key = |k: &str| symbols.find(k).is_some_and(|k| self.keys.canonical(k) == key);
        labels.iter().find(|(k, _)| is_key(k)).and_then(|(_, value)| symbols.find(value))
    }

    /// True if no spread of these pods keeps one of them out because of the others. What keeps it out in any case doesn't depend
    /// on nominations.
    fn is_within_skew(&self, pods: &[Planned<'_, '_>], target: Target<'_>, known: &mut Known) -> bool {
        let tables = &self.tables;
        pods.iter().enumerate().all(|(index, Planned { rec, met, .. })| {
            tables.shapes.get(rec.shape).spreads.iter().filter(|s| s.hard).all(|spread| {
                let selected = |ident| self.is_selected(spread.selector, ident);
                // Only nominations of its own priority and above count for a pod.
                let counts = |other: &PodRec| other.priority >= rec.priority && selected(other.ident);
                let others = || {
                    let others = pods.iter().enumerate().filter(|(other, _)| *other != index);
                    others.map(|(_, other)| other).filter(|other| counts(other.rec))
                };
                let count = others().count();
                if count == 0 {
                    return true;
                }
                let scope = SpreadScope::of(spread);
                let standing = known.standings.entry(scope).or_insert_with(|| self.standing(spread, target));
                let Some(standing) = standing else { return true };
                // A follower can't be bound first and make room again, and by its turn others may have come
                // to other nodes of the domain.
                let host = self.keys.canonical(spread.key) == self.keys.hostname;
                if *met && !host && others().any(|other| !other.met) {
                    return false;
                }
                let ahead =
                    known.ahead.entry((scope, rec.rank())).or_insert_with(|| standing.ahead(rec.rank()));
                let count = count.saturating_add(usize::from(selected(rec.ident)));
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                count.saturating_add(*ahead) <= i64::from(spread.max_skew)
            })
        })
    }

    fn is_selected(&self, selector: SelectorId, ident: IdentId) -> bool {
        let selector = self.tables.selectors.get(selector);
        selector.matches(&self.tables.symbols, &self.namespaces, self.tables.idents.get(ident))
    }

    /// True if the spread sees no domain but `here`, which is then never ahead of another.
    fn is_confined(&self, spread: &Spread, here: Sym) -> bool {
        let tables = &self.tables;
        let only = |expr: &Expr| {
            let key = self.keys.canonical(expr.key) == self.keys.canonical(spread.key);
            key && expr.operator == Operator::In && *expr.values == [here]
        };
        let reqs = tables.filters.get(spread.filter).reqs.iter().map(|req| tables.reqs.get(*req));
        spread.min_domains <= 1
            && reqs.into_iter().any(|req| matches!(&*req.terms, [term] if term.labels.iter().any(only)))
    }

    /// How a spread counts the domain of `target`, and the others; `None` if it counts no others.
    fn standing(&self, spread: &Spread, target: Target<'_>) -> Option<Standing> {
        let key = self.keys.canonical(spread.key);
        let mut standing = Standing::default();
        // A fresh host has no pods.
        let Some(domain) = self.domain_of(target.labels, key) else { return Some(standing) };
        let mut selected: FxHashMap<IdentId, bool> = FxHashMap::default();
        standing.here = Some(domain);
        if key == self.keys.hostname {
            let node = self.find_node(self.tables.symbols.text(domain));
            let bound = node.map_or(0, |node| self.bound_on(node, spread.selector, &mut selected));
            standing.bound.insert(domain, bound);
            return Some(standing);
        }
        if self.is_confined(spread, domain) {
            return None;
        }
        standing.min_domains = i64::from(spread.min_domains);
        standing.bound.insert(domain, 0);
        for (number, slot) in self.nodes.enumerate() {
            let Some(info) = slot.info.as_ref().filter(|_| is_eligible(self, spread.filter, number)) else {
                continue;
            };
            // One on its way opens its domain, and has none yet.
            let Some(value) = node_domain(self, number, key) else { continue };
            let bound = standing.bound.entry(value).or_default();
            let pods = slot.pods.iter().filter_map(|pod| self.pods.find(*pod)?.as_ref());
            for rec in pods {
                if !*selected.entry(rec.ident).or_insert_with(|| self.is_selected(spread.selector, rec.ident))
                {
                    continue;
                }
                if !rec.nominated {
                    *bound += 1;
                } else if !target.pods.contains(&*rec.key) {
                    standing.planned.push(Ahead {
                        rank: rec.rank(),
                        domain: value,
                        registered: !info.coming,
                        max_skew: self.own_skew(rec, spread),
                    });
                }
            }
        }
        standing.planned.sort_unstable_by_key(|pod| pod.rank);
        Some(standing)
    }

    /// `maxSkew` of the pod's own spread over the same pods and domains; the largest number without one.
    fn own_skew(&self, rec: &PodRec, spread: &Spread) -> i64 {
        let scope = SpreadScope::of(spread);
        let mut own = self.tables.shapes.get(rec.shape).spreads.iter();
        own.find(|own| own.hard && SpreadScope::of(own) == scope)
            .map_or(i64::MAX, |own| i64::from(own.max_skew))
    }

    /// How many pods that a selector means are bound to a node; `selected` says which identities those are.
    fn bound_on(&self, node: NodeIx, selector: SelectorId, selected: &mut FxHashMap<IdentId, bool>) -> i64 {
        let slot = self.nodes.find(node);
        let pods = slot.iter().flat_map(|slot| &slot.pods).filter_map(|pod| self.pods.find(*pod)?.as_ref());
        let is_of_selector = |ident| self.is_selected(selector, ident);
        let count = pods.filter(|rec| {
            !rec.nominated && *selected.entry(rec.ident).or_insert_with(|| is_of_selector(rec.ident))
        });
        i64::try_from(count.count()).unwrap_or(i64::MAX)
    }
}

/// How a spread counts a domain and others.
#[derive(Default)]
struct Standing {
    here: Option<Sym>,
    min_domains: i64,
    /// Bound pods by domain.
    bound: FxHashMap<Sym, i64>,
    /// Pods that are planned onto other nodes and not bound, in the order of the queue.
    planned: Vec<Ahead>,
}

/// A pod that a spread counts, planned onto another node.
struct Ahead {
    rank: QueueRank,
    domain: Sym,
    /// Its node is registered.
    registered: bool,
    /// As [`Cluster::own_skew`] says.
    max_skew: i64,
}

impl Standing {
    /// By how many pods the domain is ahead of the least of the others, or behind it, once it is the turn of the pod of this
    /// rank. Pods that come before it are bound as planned by then, but maybe not those whose nodes aren't registered, nor those
    /// that the same spread makes wait until this domain has more.
    fn ahead(&self, rank: QueueRank) -> i64 {
        let with = |all: bool| {
            let before = self.planned.iter().take_while(|other| other.rank < rank);
            let before = before.filter(|other| all || other.registered);
            let (here, elsewhere): (Vec<&Ahead>, Vec<&Ahead>) =
                before.partition(|other| Some(other.domain) == self.here);
            let mut counts = self.bound.clone();
            let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
            let own = self.here.and_then(|here| counts.remove(&here)).unwrap_or(0);
            let own = own.saturating_add(i64::try_from(here.len()).unwrap_or(i64::MAX));
            for other in elsewhere {
                let count = counts.entry(other.domain).or_default();
                if count.saturating_sub(own) < other.max_skew {
                    *count += 1;
                }
            }
            let least = counts.into_values().min().unwrap_or(own);
            own.saturating_sub(if domains < self.min_domains { 0 } else { least })
        };
        with(true).max(with(false))
    }
}

/// The spreads of a node's pods: each is evaluated once.
#[derive(Default)]
struct Known {
    standings: FxHashMap<SpreadScope, Option<Standing>>,
    ahead: FxHashMap<(SpreadScope, QueueRank), i64>,
}

impl Shape {
    /// True if no other pod, no volume, port or device, and no preference has a say in where such a pod goes.
    fn needs_only_room(&self) -> bool {
        let Self {
            requests: _,
            reqs: _,
            tolerations: _,
            ports,
            spreads,
            affinity,
            anti_affinity,
            preferred_nodes,
            preferred_pods,
            claims,
            ephemeral: _,
            devices,
        } = self;
        ports.is_empty()
            && spreads.is_empty()
            && affinity.is_none()
            && anti_affinity.is_empty()
            && preferred_nodes.is_empty()
            && preferred_pods.is_empty()
            && claims.is_none()
            && !devices
    }
}
