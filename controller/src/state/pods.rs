//! Pods: their views, demand, and nominations to the claims that a plan creates for them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use croft_api::convert::scheduler::as_recreated;
use croft_disruption::eviction::BudgetFacts;
use croft_policy::selector::Selector;
use croft_scheduler::PodKey;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{
    milestones::ends_by,
    records::{BoundPod, Nomination},
    snapshot::Snapshot,
    views::{BudgetView, PodView},
};
use crate::time::Now;

fn is_ignored(schedulers: &[String], pod: &PodView) -> bool {
    pod.scheduler.as_ref().is_some_and(|own| schedulers.iter().any(|name| **name == **own))
}

impl Snapshot {
    /// Nominates `pod` for `claim`.
    pub fn nominate(&mut self, pod: &PodKey, claim: &str) {
        let Some(view) = self.pods.get(pod) else { return };
        let nomination = Nomination { claim: claim.to_owned(), pod_uid: view.uid.clone() };
        self.drop_nomination(pod);
        self.nominations.insert(pod.clone(), nomination);
        self.nominated_to.entry(claim.to_owned()).or_default().insert(pod.clone());
        self.mark_claim_dirty(claim);
        self.update_cluster_nomination(pod, claim);
    }

    /// Releases the nominations to `claim`: its pods are demand again.
    pub fn release_nominations(&mut self, claim: &str) {
        for pod in self.nominated_to.get(claim).cloned().unwrap_or_default() {
            self.drop_nomination(&pod);
            self.arrivals += u64::from(self.demand.contains(&pod));
        }
    }

    /// Pods that are nominated to `claim` and not bound yet.
    pub fn nominated_to(&self, claim: &str) -> impl Iterator<Item = (&PodKey, &PodView)> {
        self.nominated_to.get(claim).into_iter().flatten().filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// Claims that pods are nominated to.
    #[must_use]
    pub fn nominated_claims(&self) -> BTreeSet<String> {
        self.nominated_to.keys().cloned().collect()
    }

    /// Pending pods without a nomination.
    pub fn unnominated_demand(&self) -> impl Iterator<Item = &PodKey> {
        self.demand.iter().filter(|key| !self.nominations.contains_key(*key))
    }

    /// Pending pods of these schedulers are no demand.
    pub(super) fn ignore_schedulers(&mut self, names: Vec<String>) {
        if self.ignored_schedulers == names {
            return;
        }
        self.cluster.ignore_schedulers(names.iter().map(String::as_str));
        self.ignored_schedulers = names;
        for (key, pod) in &mut self.pods {
            pod.traits.demand = pod.traits.pending && !is_ignored(&self.ignored_schedulers, pod);
            if pod.traits.demand {
                self.demand.insert(key.clone());
            } else {
                self.demand.remove(key);
            }
        }
        self.plan_version += 1;
    }

    pub(super) fn observe_pod(&mut self, pod: &Pod, now: Now) {
        let key = PodKey::new(pod.namespace().as_deref().unwrap_or_default(), &pod.name_any());
        let mut view = PodView::read(pod);
        if self.is_superseded(
            &view.uid,
            self.pods.get(&key).map(|old| (&*old.uid, old.version)),
            view.version,
        ) {
            return;
        }
        if view.traits.finished {
            self.drop_pod(&key);
            return;
        }
        view.traits.demand &= !is_ignored(&self.ignored_schedulers, &view);
        let known = self.pods.get(&key).filter(|old| old.uid == view.uid);
        let known = known.map(|old| (old.deletion, old.ends_by));
        view.ends_by = ends_by(view.deletion, view.deletion_grace_seconds, known, now);
        let old = self.pods.get(&key).filter(|old| old.uid == view.uid);
        if let (Some(old), true) = (old, view.traits.demand) {
            view.pending_since = if old.traits.demand { old.pending_since } else { Some(now.wall) };
        }
        let bound = old.and_then(|old| self.observe_binding(&key, old, &view, now));
        self.bound.extend(bound);
        self.share_labels(&mut view);
        // Evaluated before the cluster takes in the new version: a bound pod has its node's zone labels, and so
        // equals no pending pod.
        let displaced = view.node.as_deref().and_then(|node| self.displaced_by(&key, node));
        let read = self.cluster.upsert_pod(&as_recreated(pod));
        self.record_problem("Pod", &key.to_string(), read);
        let before = self.pods.get(&key).map(|p| (p.traits.demand, p.node.clone(), p.uid.clone()));
        if before.as_ref().is_none_or(|(_, node, _)| *node != view.node) {
            if let Some((_, Some(node), _)) = &before {
                self.unbind(node, &key);
            }
            if let Some(node) = &view.node {
                self.pods_on.entry(node.clone()).or_default().insert(key.clone());
            }
        }
        if let Some(node) = &view.node {
            self.mark_node_dirty(node);
        }
        let nomination_holds =
            view.traits.demand && self.nominations.get(&key).is_some_and(|n| n.pod_uid == view.uid);
        if view.traits.demand {
            self.demand.insert(key.clone());
        } else {
            self.demand.remove(&key);
        }
        if before != Some((view.traits.demand, view.node.clone(), view.uid.clone())) {
            self.plan_version += 1;
            self.arrivals += u64::from(view.traits.demand);
        }
        if let Some(owner) = view.owner.clone() {
            *self.replicas.entry(owner).or_default() += 1;
        }
        if let Some(PodView { owner: Some(owner), .. }) = self.pods.insert(key.clone(), view) {
            self.remove_replica(&owner);
        }
        let nominated_claim = self.nominations.get(&key).map(|nomination| nomination.claim.clone());
        if nomination_holds {
            // The cluster has taken in the pod again, without its nomination.
            if let Some(claim) = &nominated_claim {
                self.update_cluster_nomination(&key, claim);
            }
        } else {
            self.drop_nomination(&key);
        }
        match (displaced, nominated_claim) {
            (None, _) => {}
            (Some(other), Some(place)) => self.nominate(&other, &place),
            (Some(other), None) => {
                self.drop_nomination(&other);
                self.arrivals += 1;
            }
        }
    }

    /// The pod that is nominated to `node` and displaced when `pod`, which is equal to it and not nominated there,
    /// is bound there. kube-scheduler doesn't know plans, and binds any of two equal pods. The displaced pod takes
    /// over the nomination of `pod`, or is demand again if there was none. Otherwise that nomination would reserve
    /// nothing, and the displaced pod would seem to have a place.
    fn displaced_by(&self, pod: &PodKey, node: &str) -> Option<PodKey> {
        if self.pods.get(pod)?.node.is_some() {
            return None;
        }
        let claim = self.claim_of_node(node)?.metadata.name.as_ref()?;
        if self.nominations.get(pod).is_some_and(|nomination| nomination.claim == *claim) {
            return None;
        }
        self.nominated_to(claim)
            // A pod with `nominatedNodeName` keeps its place there, whichever pod is bound.
            .filter(|(_, view)| view.nominated.as_deref() != Some(node))
            .find(|(key, _)| self.cluster.alike(key, pod))
            .map(|(key, _)| key.clone())
    }

    /// The nominated pod, if its new version is the first that is bound.
    fn observe_binding(&self, key: &PodKey, old: &PodView, new: &PodView, now: Now) -> Option<BoundPod> {
        let nomination = self.nominations.get(key).filter(|nomination| nomination.pod_uid == new.uid)?;
        let since = old.pending_since.filter(|_| old.node.is_none() && new.node.is_some())?;
        Some(BoundPod {
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
            pool: self.claims.get(&nomination.claim)?.spec.pool.clone(),
            // The API server's clock may be ahead.
            waited: Duration::try_from(now.wall.duration_since(since)).unwrap_or_default(),
        })
    }

    /// Takes the nominated pods that were bound since the last call.
    pub fn take_bound_pods(&mut self) -> Vec<BoundPod> {
        std::mem::take(&mut self.bound)
    }

    /// The pool of the claim that `pod` is nominated to.
    #[must_use]
    pub fn nominated_pool(&self, pod: &PodKey) -> Option<&str> {
        let nomination = self.nominations.get(pod)?;
        Some(self.claims.get(&nomination.claim)?.spec.pool.as_str())
    }

    fn share_labels(&mut self, view: &mut PodView) {
        if let Some(held) = self.labels.get(&view.labels) {
            view.labels = Arc::clone(held);
            return;
        }
        // Label sets without a pod are removed before they outnumber the pods.
        if self.labels.len() > self.pods.len() + 100 {
            self.labels.retain(|held| Arc::strong_count(held) > 1);
        }
        self.labels.insert(Arc::clone(&view.labels));
    }

    pub(super) fn remove_pod(&mut self, key: &PodKey, now: Now) {
        if let Some(view) = self.pods.get(key) {
            self.tombstones.insert(view.uid.clone(), now);
        }
        self.drop_pod(key);
    }

    pub(super) fn observe_budget(&mut self, namespace: String, name: String, new: Option<BudgetView>) {
        let now = new.as_ref().map(|budget| (budget.selector.clone(), budget.facts));
        let budgets = self.budgets.entry(namespace.clone()).or_default();
        let old = match new {
            Some(view) => budgets.insert(name, view),
            None => budgets.remove(&name),
        };
        let is_alike = |((selector, facts), old): ((Option<Selector>, BudgetFacts), &BudgetView)| {
            selector == old.selector && facts.decides_as(&old.facts)
        };
        if now.is_none() && old.is_none() || now.zip(old.as_ref()).is_some_and(is_alike) {
            return;
        }
        let pods = self.pods.range(PodKey::new(&namespace, "")..);
        let pods = pods.take_while(|(key, _)| *key.namespace == *namespace);
        let nodes: BTreeSet<Box<str>> = pods.filter_map(|(_, pod)| pod.node.clone()).collect();
        for node in nodes {
            self.mark_node_dirty(&node);
        }
    }

    fn drop_pod(&mut self, key: &PodKey) {
        self.drop_nomination(key);
        self.cluster.remove_pod(&key.namespace, &key.name);
        self.problems.remove(&format!("Pod {key}"));
        self.demand.remove(key);
        if let Some(PodView { node, owner, .. }) = self.pods.remove(key) {
            node.inspect(|node| self.unbind(node, key));
            owner.inspect(|owner| self.remove_replica(owner));
        }
        self.plan_version += 1;
    }

    fn remove_replica(&mut self, owner: &str) {
        if let Some(count) = self.replicas.get_mut(owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.replicas.remove(owner);
            }
        }
    }

    fn unbind(&mut self, node: &str, key: &PodKey) {
        if let Some(pods) = self.pods_on.get_mut(node) {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_on.remove(node);
            }
        }
        self.mark_node_dirty(node);
    }

    fn drop_nomination(&mut self, pod: &PodKey) {
        if let Some(nomination) = self.nominations.remove(pod) {
            if let Some(pods) = self.nominated_to.get_mut(&nomination.claim) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.nominated_to.remove(&nomination.claim);
                }
            }
            self.cluster.release(pod);
            self.mark_claim_dirty(&nomination.claim);
            self.plan_version += 1;
        }
    }
}
