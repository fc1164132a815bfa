//! Pods, and where plans mean them to go.

use std::{collections::BTreeSet, sync::Arc};

use croft_api::convert::scheduler::as_recreated;
use croft_scheduler::PodKey;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{BudgetView, PodView, Snapshot, seen::ends_by};
use crate::time::Now;

/// A pod's place on a claim that a plan made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nomination {
    pub(super) claim: String,
    pub(super) pod_uid: Box<str>,
}

impl Snapshot {
    /// Notes that a plan means `pod` for `claim`.
    pub fn nominate(&mut self, pod: &PodKey, claim: &str) {
        let Some(view) = self.pods.get(pod) else { return };
        let nomination = Nomination { claim: claim.to_owned(), pod_uid: view.uid.clone() };
        self.drop_nomination(pod);
        self.nominations.insert(pod.clone(), nomination);
        self.nominated_to.entry(claim.to_owned()).or_default().insert(pod.clone());
        self.touch_claim(claim);
        self.tell_nomination(pod, claim);
    }

    /// Forgets what was planned for `claim`: its pods are demand again.
    pub fn release_nominations(&mut self, claim: &str) {
        for pod in self.nominated_to.get(claim).cloned().unwrap_or_default() {
            self.drop_nomination(&pod);
            self.arrivals += u64::from(self.demand.contains(&pod));
        }
    }

    /// Pods that a plan means for `claim` and that haven't got a node.
    pub fn nominated_to(&self, claim: &str) -> impl Iterator<Item = (&PodKey, &PodView)> {
        self.nominated_to.get(claim).into_iter().flatten().filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// Claims that planned pods wait for.
    #[must_use]
    pub fn nominated_claims(&self) -> BTreeSet<String> {
        self.nominated_to.keys().cloned().collect()
    }

    /// Pods that wait for a place and aren't meant for any coming machine.
    pub fn unplanned(&self) -> impl Iterator<Item = &PodKey> {
        self.demand.iter().filter(|key| !self.nominations.contains_key(*key))
    }

    pub(super) fn pod(&mut self, pod: &Pod, now: Now) {
        let key = PodKey::new(pod.namespace().as_deref().unwrap_or_default(), &pod.name_any());
        let mut view = PodView::of(pod);
        if self.knows_better(&view.uid, self.pods.get(&key).map(|old| (&*old.uid, old.version)), view.version)
        {
            return;
        }
        if view.is.finished {
            self.forget_pod(&key);
            return;
        }
        let known = self.pods.get(&key).filter(|old| old.uid == view.uid);
        let known = known.map(|old| (old.deletion, old.ends_by));
        view.ends_by = ends_by(view.deletion, view.deletion_grace_seconds, known, now);
        self.share_labels(&mut view);
        // Before the cluster reads it anew: bound pods have labels of their node's zone, so none is like one that waits.
        let displaced = view.node.as_deref().and_then(|node| self.displaced_by(&key, node));
        let read = self.cluster.upsert_pod(&as_recreated(pod));
        self.judge("Pod", &key.to_string(), read);
        let before = self.pods.get(&key).map(|p| (p.is.demand, p.node.clone(), p.uid.clone()));
        if before.as_ref().is_none_or(|(_, node, _)| *node != view.node) {
            if let Some((_, Some(node), _)) = &before {
                self.unplace(node, &key);
            }
            if let Some(node) = &view.node {
                self.pods_on.entry(node.clone()).or_default().insert(key.clone());
            }
        }
        if let Some(node) = &view.node {
            self.touch_node(node);
        }
        let nomination_holds =
            view.is.demand && self.nominations.get(&key).is_some_and(|n| n.pod_uid == view.uid);
        if view.is.demand {
            self.demand.insert(key.clone());
        } else {
            self.demand.remove(&key);
        }
        if before != Some((view.is.demand, view.node.clone(), view.uid.clone())) {
            self.plan_version += 1;
            self.arrivals += u64::from(view.is.demand);
        }
        if let Some(owner) = view.owner.clone() {
            *self.replicas.entry(owner).or_default() += 1;
        }
        if let Some(PodView { owner: Some(owner), .. }) = self.pods.insert(key.clone(), view) {
            self.lose_replica(&owner);
        }
        let meant_for = self.nominations.get(&key).map(|nomination| nomination.claim.clone());
        if nomination_holds {
            // The cluster read the pod anew; what is planned for it holds.
            if let Some(claim) = &meant_for {
                self.tell_nomination(&key, claim);
            }
        } else {
            self.drop_nomination(&key);
        }
        match (displaced, meant_for) {
            (None, _) => {}
            (Some(other), Some(place)) => self.nominate(&other, &place),
            (Some(other), None) => {
                self.drop_nomination(&other);
                self.arrivals += 1;
            }
        }
    }

    /// The pod that a plan means for `node`, when `pod`, which is like it and was not meant to go there, is bound there in
    /// its place: kube-scheduler doesn't know plans, and to it the two are the same. It gets the place that was meant for
    /// the first, or is demand again if there was none; otherwise that place would count as free, and it as having one.
    fn displaced_by(&self, pod: &PodKey, node: &str) -> Option<PodKey> {
        if self.pods.get(pod)?.node.is_some() {
            return None;
        }
        let claim = self.claim_of_node(node)?.metadata.name.as_ref()?;
        if self.nominations.get(pod).is_some_and(|nomination| nomination.claim == *claim) {
            return None;
        }
        self.nominated_to(claim)
            // Who was told of the node keeps its place there, whoever else is bound.
            .filter(|(_, view)| view.nominated.as_deref() != Some(node))
            .find(|(key, _)| self.cluster.alike(key, pod))
            .map(|(key, _)| key.clone())
    }

    fn share_labels(&mut self, view: &mut PodView) {
        if let Some(held) = self.labels.get(&view.labels) {
            view.labels = Arc::clone(held);
            return;
        }
        // Sets that nothing uses any more go before they outnumber the pods.
        if self.labels.len() > self.pods.len() + 100 {
            self.labels.retain(|held| Arc::strong_count(held) > 1);
        }
        self.labels.insert(Arc::clone(&view.labels));
    }

    pub(super) fn pod_gone(&mut self, key: &PodKey, now: Now) {
        if let Some(view) = self.pods.get(key) {
            self.graves.bury(view.uid.clone(), now);
        }
        self.forget_pod(key);
    }

    pub(super) fn budget(&mut self, namespace: String, name: String, new: Option<BudgetView>) {
        let keeps = |budget: &BudgetView| (budget.selector.clone(), budget.allowed < 1);
        let keeps_now = new.as_ref().map(keeps);
        let budgets = self.budgets.entry(namespace.clone()).or_default();
        let old = match new {
            Some(view) => budgets.insert(name, view),
            None => budgets.remove(&name),
        };
        // How many it allows beyond one keeps nobody.
        if old.as_ref().map(keeps) == keeps_now {
            return;
        }
        let pods = self.pods.range(PodKey::new(&namespace, "")..);
        let pods = pods.take_while(|(key, _)| *key.namespace == *namespace);
        let nodes: BTreeSet<Box<str>> = pods.filter_map(|(_, pod)| pod.node.clone()).collect();
        for node in nodes {
            self.touch_node(&node);
        }
    }

    fn forget_pod(&mut self, key: &PodKey) {
        self.drop_nomination(key);
        self.cluster.remove_pod(&key.namespace, &key.name);
        self.problems.remove(&format!("Pod {key}"));
        self.demand.remove(key);
        if let Some(PodView { node, owner, .. }) = self.pods.remove(key) {
            node.inspect(|node| self.unplace(node, key));
            owner.inspect(|owner| self.lose_replica(owner));
        }
        self.plan_version += 1;
    }

    fn lose_replica(&mut self, owner: &str) {
        if let Some(count) = self.replicas.get_mut(owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.replicas.remove(owner);
            }
        }
    }

    fn unplace(&mut self, node: &str, key: &PodKey) {
        if let Some(pods) = self.pods_on.get_mut(node) {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_on.remove(node);
            }
        }
        self.touch_node(node);
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
            self.touch_claim(&nomination.claim);
            self.plan_version += 1;
        }
    }
}
