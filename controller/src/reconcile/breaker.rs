//! The circuit breaker: caps how many nodes leave a pool and the cluster at once on evidence that can be wrong.
//!
//! A kubelet that doesn't answer, an instance that a list lacks, a rebalance recommendation: each is evidence about
//! one node. Each can be wrong about all nodes together, since the network, an image, the control plane or the
//! credentials may be the cause. If the breaker opens too early, some broken instances cost their price, and
//! kube-controller-manager recreates their pods elsewhere. If it opens too late, every workload goes down. So the
//! cap is low, and it counts every node that is out already: not Ready, its instance not listed, or being removed
//! for whatever reason.
//!
//! Every decider that removes a node on such evidence ([`Cause`]) calls [`Breaker::admit`] first. Voluntary
//! disruption is capped by budgets, and a spot interruption is the cloud's own act: neither calls it, and both are
//! counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{
    NodeClaim,
    condition::{INITIALIZED, INTERRUPTED, REGISTERED, Statement},
};

use crate::{
    definitions::conditions as reasons,
    reconcile::commands::Commands,
    state::{Snapshot, has_condition, instance_of},
};

/// Nodes of a pool that may be out at once: a fifth, one at least.
const OF_POOL: Cap = Cap { percent: 20, always: 1 };
/// Nodes of the cluster: a tenth, three at least, so that several small pools don't wait for each other.
const OF_CLUSTER: Cap = Cap { percent: 10, always: 3 };
/// Nodes that the condition names.
const NAMED: usize = 5;

/// The evidence on which a node would be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The node has not been Ready for long, its monitoring agent reports a defect, or a status check of its instance fails.
    Unhealthy,
    /// The node registered and wasn't initialized in time.
    Uninitialized,
    /// The cloud no longer has the node's instance.
    InstanceMissing,
    /// The cloud recommends to leave the instance, and may never take it.
    Rebalance,
    /// The instance has no NodeClaim.
    Unclaimed,
}

impl Cause {
    /// The reason in the condition and the event.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unhealthy => reasons::TOO_MANY_UNHEALTHY_NODES,
            Self::Uninitialized => reasons::TOO_MANY_UNINITIALIZED_NODES,
            Self::InstanceMissing => reasons::TOO_MANY_MISSING_INSTANCES,
            Self::Rebalance => reasons::TOO_MANY_REBALANCE_RECOMMENDATIONS,
            Self::Unclaimed => reasons::TOO_MANY_UNCLAIMED_INSTANCES,
        }
    }

    /// The likely cause, and what to do.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Unhealthy => {
                "the cause is more likely the network, the image, the control plane or a node agent than each of these \
                 nodes: check the kubelets' logs and the newest change of the node class"
            }
            Self::Uninitialized => {
                "the cause is more likely the image, a device or network plugin, or the agent that removes a startup taint than \
                 each of these nodes: see what the condition Initialized of their NodeClaims names"
            }
            Self::InstanceMissing => {
                "the controller may have the credentials of another account or region, or the cluster tag was taken off: \
                 check both, and whether the instances still run"
            }
            Self::Rebalance => {
                "the recommendations are followed a few nodes at a time: no action is needed, unless the nodes should \
                 leave faster"
            }
            Self::Unclaimed => {
                "the claims may have been deleted, or restored from an older backup: restore them, or terminate the \
                 instances"
            }
        }
    }
}

/// A cap on a number of nodes.
#[derive(Clone, Copy, Debug)]
struct Cap {
    percent: usize,
    always: usize,
}

impl Cap {
    fn limit(self, total: usize) -> usize {
        self.always.max(total * self.percent / 100)
    }
}

/// Nodes of a pool, or of the cluster.
#[derive(Debug, Default)]
struct Counted {
    /// Nodes that were initialized, and others that are out.
    total: usize,
    /// Names of the claims, or ids of the instances, that are out.
    out: BTreeSet<String>,
}

impl Counted {
    fn count_with(&self, member: &str) -> usize {
        self.out.len() + usize::from(!self.out.contains(member))
    }
}

/// Why nodes of a pool are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The evidence that was not acted on.
    pub cause: Cause,
    message: String,
}

impl Stopped {
    /// The condition of the pool.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement {
            kind: reasons::DISRUPTION_STOPPED,
            status: Some(true),
            reason: self.cause.reason(),
            message: self.message.clone(),
        }
    }
}

/// The nodes that are out in one pass.
#[derive(Debug, Default)]
pub struct Breaker {
    cluster: Counted,
    pools: BTreeMap<String, Counted>,
    stopped: BTreeMap<(String, Cause), Stopped>,
}

impl Breaker {
    /// Counts the nodes in `snapshot`. An instance that this process has known for less than `grace` may be missing
    /// from the last list.
    #[must_use]
    pub fn new(snapshot: &Snapshot, grace: Duration) -> Self {
        let mut breaker = Self::default();
        let commands = Commands::read(snapshot);
        for (name, claim) in snapshot.claims() {
            let listed = listed(snapshot, name, claim, grace);
            if !has_condition(claim, INITIALIZED) {
                // A node that isn't initialized is out only if no list shows its instance: with the credentials of another
                // account, all of them would go one pass after the other. For the same reason it is out while it is removed.
                let going = claim.metadata.deletion_timestamp.is_some() && has_condition(claim, REGISTERED);
                if listed == Listed::No || going {
                    breaker.count(&claim.spec.pool, name, true);
                }
                continue;
            }
            let replaced = has_condition(claim, INTERRUPTED) && commands.is_replaced(name);
            let out = claim.metadata.deletion_timestamp.is_some()
                || replaced
                || snapshot
                    .node_of(claim)
                    .is_none_or(|(_, node)| !node.ready || node.deleting || !node.defects.is_empty())
                || snapshot.fails_checks(claim)
                || listed != Listed::Alive;
            breaker.count(&claim.spec.pool, name, out);
        }
        breaker
    }

    fn count(&mut self, pool: &str, name: &str, out: bool) {
        let of_pool = self.pools.entry(pool.to_owned()).or_default();
        for counted in [of_pool, &mut self.cluster] {
            counted.total += 1;
            if out {
                counted.out.insert(name.to_owned());
            }
        }
    }

    /// True if `member`, the name of a claim or the id of an instance, may be removed from `pool` for `cause`; it
    /// counts as out from then on. If it may not, [`Self::stopped`] says why.
    pub fn admit(&mut self, cause: Cause, pool: &str, member: &str) -> bool {
        let of_pool = self.pools.entry(pool.to_owned()).or_default();
        let scopes = [("pool", &*of_pool, OF_POOL), ("cluster", &self.cluster, OF_CLUSTER)];
        let full = scopes
            .into_iter()
            .find(|(_, counted, cap)| counted.count_with(member) > cap.limit(counted.total));
        if let Some((scope, counted, cap)) = full {
            let message = stop_message(cause, scope, counted, cap, member);
            self.stopped.entry((pool.to_owned(), cause)).or_insert(Stopped { cause, message });
            return false;
        }
        of_pool.out.insert(member.to_owned());
        self.cluster.out.insert(member.to_owned());
        true
    }

    /// Why nodes of `pool` are kept, if some are.
    #[must_use]
    pub fn stopped(&self, pool: &str) -> Option<&Stopped> {
        self.stopped.iter().find(|((of, _), _)| of == pool).map(|(_, stopped)| stopped)
    }
}

fn stop_message(cause: Cause, scope: &str, counted: &Counted, cap: Cap, member: &str) -> String {
    let mut names: Vec<&str> = counted.out.iter().take(NAMED).map(String::as_str).collect();
    if counted.out.len() < NAMED && !counted.out.contains(member) {
        names.push(member);
    }
    let more = if counted.count_with(member) > names.len() { ", ..." } else { "" };
    format!(
        "{} of {} nodes of the {scope} would be out at once ({}{more}): not Ready, without an instance, or being removed. \
         Croft removes no more than {} at once on such evidence; {}. To remove one node all the same, delete its NodeClaim",
        counted.count_with(member),
        counted.total,
        names.join(", "),
        cap.limit(counted.total),
        cause.remedy(),
    )
}

/// A claim's instance in the last list of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// It is alive, or the list may be too old to show it.
    Alive,
    /// It is going, or gone.
    Ended,
    /// The list lacks it.
    No,
}

fn listed(snapshot: &Snapshot, name: &str, claim: &NodeClaim, grace: Duration) -> Listed {
    let Some((list, id)) = snapshot.instances().zip(instance_of(claim)) else { return Listed::Alive };
    let seen = snapshot.milestones(name).launched;
    if seen.is_none_or(|seen| list.asked.mono < seen.saturating_add(grace)) {
        return Listed::Alive;
    }
    match list.instances.get(id) {
        Some(instance) if instance.state.is_alive() => Listed::Alive,
        Some(_) => Listed::Ended,
        None => Listed::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools with a number of nodes each, and how many of those are out.
    fn breaker(pools: &[(&str, usize, usize)]) -> Breaker {
        let mut breaker = Breaker::default();
        for (pool, total, out) in pools {
            for n in 0..*total {
                breaker.count(pool, &format!("{pool}-{n}"), n < *out);
            }
        }
        breaker
    }

    #[test]
    fn caps_are_a_share_of_the_nodes_and_at_least_the_minimum() {
        for (total, pool, cluster) in
            [(0, 1, 3), (1, 1, 3), (9, 1, 3), (10, 2, 3), (40, 8, 4), (1_000, 200, 100)]
        {
            assert_eq!((OF_POOL.limit(total), OF_CLUSTER.limit(total)), (pool, cluster), "{total} nodes");
        }
    }

    #[test]
    fn a_node_is_removed_only_while_few_are_out() {
        // Pool p: nodes, nodes out; other nodes, nodes out; whether the next healthy and the first unhealthy node
        // may go.
        let cases = [
            (10, 0, 0, 0, true, None),
            (10, 1, 0, 0, true, Some(true)),
            (10, 2, 0, 0, false, Some(true)),
            (10, 3, 0, 0, false, Some(false)),
            (1, 0, 0, 0, true, None),
            (1, 1, 0, 0, false, Some(true)),
            (5, 2, 0, 0, false, Some(false)),
            // The rest of the cluster counts.
            (10, 1, 10, 2, false, Some(true)),
            (10, 1, 10, 3, false, Some(false)),
            (10, 1, 30, 3, false, Some(true)),
            (10, 2, 90, 9, false, Some(false)),
        ];
        for (total, out, others, others_out, healthy, unhealthy) in cases {
            let new = || breaker(&[("p", total, out), ("q", others, others_out)]);
            let case = format!("{out} of {total} and {others_out} of {others}");
            let next = format!("p-{out}");
            if out < total {
                assert_eq!(
                    new().admit(Cause::Rebalance, "p", &next),
                    healthy,
                    "a healthy node with {case} out"
                );
            }
            if let Some(expected) = unhealthy {
                assert_eq!(
                    new().admit(Cause::Unhealthy, "p", "p-0"),
                    expected,
                    "an unhealthy node with {case} out"
                );
            }
        }
    }

    #[test]
    fn each_admitted_node_counts_for_the_next() {
        let mut breaker = breaker(&[("p", 10, 0), ("q", 30, 0)]);
        let admitted = (0..10).filter(|n| breaker.admit(Cause::Rebalance, "p", &format!("p-{n}"))).count();
        assert_eq!(admitted, 2, "a fifth of the pool");
        let admitted = (0..30).filter(|n| breaker.admit(Cause::Rebalance, "q", &format!("q-{n}"))).count();
        assert_eq!(admitted, 2, "a tenth of the cluster");
        assert!(breaker.admit(Cause::Rebalance, "p", "p-0"), "one that was admitted before");
    }

    #[test]
    fn an_open_breaker_names_the_nodes_and_the_cause() {
        let mut breaker = breaker(&[("p", 10, 4)]);
        assert_eq!(breaker.stopped("p"), None);
        assert!(!breaker.admit(Cause::Unhealthy, "p", "p-0"));
        assert_eq!(breaker.stopped("q"), None);
        let statement = breaker.stopped("p").unwrap().statement();
        assert_eq!(
            (statement.kind, statement.status, statement.reason),
            (reasons::DISRUPTION_STOPPED, Some(true), reasons::TOO_MANY_UNHEALTHY_NODES)
        );
        assert!(
            statement
                .message
                .starts_with("4 of 10 nodes of the pool would be out at once (p-0, p-1, p-2, p-3):")
                && statement.message.contains("no more than 2 at once")
                && statement.message.contains("check the kubelets' logs"),
            "{}",
            statement.message
        );
    }
}
