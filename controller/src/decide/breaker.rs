//! The breaker: one cap on how many nodes leave a pool and the cluster at once on evidence that can be wrong.
//!
//! A kubelet that doesn't answer, an instance that a list lacks, a recommendation: each is evidence about one node, and
//! each can be wrong about all of them together, since the network, an image, the control plane or the credentials stand
//! behind it. Stopping too early costs the price of some broken instances, as their pods are recreated elsewhere by
//! kube-controller-manager. Going on too long costs everything that runs. So the cap is low, and it counts every node
//! that is out already: not Ready, its instance not listed, or on its way out for whatever reason.
//!
//! Who counts what: [`Breaker::admit`] is asked for each node before it is removed, by every decision that rests on such
//! evidence ([`Cause`]). Budgets count what Croft removes of its own choice; a spot interruption is the cloud's own act.
//! Neither asks here, and both are counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{
    NodeClaim,
    condition::{INITIALIZED, INTERRUPTED, Statement},
};

use super::{disrupt::moves::Moves, termination::machine_id};
use crate::snapshot::{Snapshot, is};

/// The condition of a TenantPool that says that the breaker holds nodes back.
pub const CONDITION: &str = "DisruptionStopped";
/// Nodes that may be out at once: of a pool a fifth, one at least.
const OF_POOL: Cap = Cap { percent: 20, always: 1 };
/// Of the cluster a tenth, three at least, so that several small pools don't wait for each other.
const OF_CLUSTER: Cap = Cap { percent: 10, always: 3 };
/// Nodes that the condition names.
const NAMED: usize = 5;

/// The evidence on which a node would be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The node has not been Ready for long.
    Unhealthy,
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
            Self::Unhealthy => "TooManyUnhealthyNodes",
            Self::InstanceMissing => "TooManyMissingInstances",
            Self::Rebalance => "TooManyRebalanceRecommendations",
            Self::Unclaimed => "TooManyUnclaimedInstances",
        }
    }

    /// What may have happened, and what to do.
    const fn advice(self) -> &'static str {
        match self {
            Self::Unhealthy => {
                "the cause is more likely the network, the image, the control plane or a node agent than each of these \
                 nodes: check the kubelets' logs and the newest change of the node class"
            }
            Self::InstanceMissing => {
                "the controller may have the credentials of another account or region, or the cluster tag was taken off: \
                 check both, and whether the instances still run"
            }
            Self::Rebalance => {
                "the recommendations are followed a few nodes at a time: nothing is to be done, unless the nodes should \
                 leave faster"
            }
            Self::Unclaimed => {
                "the claims may have been deleted, or restored from an older backup: restore them, or terminate the \
                 instances"
            }
        }
    }
}

/// How many of a number of nodes may be out.
#[derive(Clone, Copy, Debug)]
struct Cap {
    percent: usize,
    always: usize,
}

impl Cap {
    fn of(self, total: usize) -> usize {
        self.always.max(total * self.percent / 100)
    }
}

/// Nodes of a pool, or of the cluster.
#[derive(Debug, Default)]
struct Counted {
    /// Nodes that have worked.
    total: usize,
    /// Names of the claims, or ids of the instances, that are out.
    out: BTreeSet<String>,
}

impl Counted {
    fn with(&self, member: &str) -> usize {
        self.out.len() + usize::from(!self.out.contains(member))
    }
}

/// Why nodes of a pool are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The evidence that was not followed.
    pub cause: Cause,
    message: String,
}

impl Stopped {
    /// The condition of the pool.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement {
            kind: CONDITION,
            status: Some(true),
            reason: self.cause.reason(),
            message: self.message.clone(),
        }
    }
}

/// The nodes that are out in one round of decisions.
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
        let moves = Moves::read(snapshot);
        for (name, claim) in snapshot.claims.iter().filter(|(_, claim)| is(claim, INITIALIZED)) {
            let leaves = is(claim, INTERRUPTED) && moves.is_replaced(name);
            let out = claim.metadata.deletion_timestamp.is_some()
                || leaves
                || snapshot.node_of(claim).is_none_or(|(_, node)| !node.ready || node.deleting)
                || is_unlisted(snapshot, name, claim, grace);
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

    /// True if `member`, the name of a claim or the id of an instance, may be removed from `pool` for `cause`; it counts
    /// as out from then on. Where it may not, the pool says why.
    pub fn admit(&mut self, cause: Cause, pool: &str, member: &str) -> bool {
        let of_pool = self.pools.entry(pool.to_owned()).or_default();
        let scopes = [("pool", &*of_pool, OF_POOL), ("cluster", &self.cluster, OF_CLUSTER)];
        let full = scopes.into_iter().find(|(_, counted, cap)| counted.with(member) > cap.of(counted.total));
        if let Some((scope, counted, cap)) = full {
            let message = message(cause, scope, counted, cap, member);
            self.stopped.entry((pool.to_owned(), cause)).or_insert(Stopped { cause, message });
            return false;
        }
        of_pool.out.insert(member.to_owned());
        self.cluster.out.insert(member.to_owned());
        true
    }

    /// Why nodes of `pool` are held back, if some are.
    #[must_use]
    pub fn stopped(&self, pool: &str) -> Option<&Stopped> {
        self.stopped.iter().find(|((of, _), _)| of == pool).map(|(_, stopped)| stopped)
    }
}

fn message(cause: Cause, scope: &str, counted: &Counted, cap: Cap, member: &str) -> String {
    let mut names: Vec<&str> = counted.out.iter().take(NAMED).map(String::as_str).collect();
    if counted.out.len() < NAMED && !counted.out.contains(member) {
        names.push(member);
    }
    let more = if counted.with(member) > names.len() { ", ..." } else { "" };
    format!(
        "{} of {} nodes of the {scope} would be out at once ({}{more}): not Ready, without an instance, or being removed. \
         Croft removes no more than {} at once on such evidence; {}. To remove one node all the same, delete its NodeClaim",
        counted.with(member),
        counted.total,
        names.join(", "),
        cap.of(counted.total),
        cause.advice(),
    )
}

/// True if the last list of instances should have shown the claim's, and didn't show it alive.
fn is_unlisted(snapshot: &Snapshot, name: &str, claim: &NodeClaim, grace: Duration) -> bool {
    let Some(list) = &snapshot.machines.0 else { return false };
    let Some(status) = &claim.status else { return false };
    let Some(id) = status.provider_id.as_deref().map(machine_id) else { return false };
    let seen = snapshot.milestones(name).launched;
    seen.is_some_and(|seen| list.asked.mono >= seen.saturating_add(grace))
        && list.machines.get(id).is_none_or(|machine| !machine.state.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools of so many nodes, of which so many are out.
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
    fn caps_are_a_share_and_never_less_than_the_least() {
        for (total, pool, cluster) in
            [(0, 1, 3), (1, 1, 3), (9, 1, 3), (10, 2, 3), (40, 8, 4), (1_000, 200, 100)]
        {
            assert_eq!((OF_POOL.of(total), OF_CLUSTER.of(total)), (pool, cluster), "{total} nodes");
        }
    }

    #[test]
    fn a_node_goes_only_while_few_are_out() {
        // Pool p: nodes, those out; other nodes, those out; what the next healthy and the first unhealthy node may do.
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
            let of = || breaker(&[("p", total, out), ("q", others, others_out)]);
            let case = format!("{out} of {total} and {others_out} of {others}");
            let next = format!("p-{out}");
            if out < total {
                assert_eq!(
                    of().admit(Cause::Rebalance, "p", &next),
                    healthy,
                    "a healthy node with {case} out"
                );
            }
            if let Some(expected) = unhealthy {
                assert_eq!(
                    of().admit(Cause::Unhealthy, "p", "p-0"),
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
    fn a_pool_says_what_was_held_back_and_why() {
        let mut breaker = breaker(&[("p", 10, 4)]);
        assert_eq!(breaker.stopped("p"), None);
        assert!(!breaker.admit(Cause::Unhealthy, "p", "p-0"));
        assert_eq!(breaker.stopped("q"), None);
        let said = breaker.stopped("p").unwrap().statement();
        assert_eq!((said.kind, said.status, said.reason), (CONDITION, Some(true), "TooManyUnhealthyNodes"));
        assert!(
            said.message.starts_with("4 of 10 nodes of the pool would be out at once (p-0, p-1, p-2, p-3):")
                && said.message.contains("no more than 2 at once"),
            "{}",
            said.message
        );
    }
}
