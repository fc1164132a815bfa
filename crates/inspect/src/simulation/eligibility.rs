//! Which nodes may be disrupted, and the cost of it: the facts of files for the controller's rules in `croft_disruption`.

use std::{cell::OnceCell, collections::BTreeMap, time::Duration};

use croft_api::{
    TenantPool,
    config::SINGLETON,
    convert::policy::selector,
    duration,
    pause::Pause,
    zone::{self, ClosedZone},
};
use croft_disruption::{
    blockers::{self, DisruptionBlocker, Forbidden, PodFacts, PodWish},
    cost::{self, MovedPod},
    eligibility::{self, Eligibility, NodeFacts},
    eviction::{BudgetFacts, Eviction, Guard, always_allows_unready, ends_with_node},
    pause::{self, PauseInForce},
};
use croft_manifest::Input;
use croft_policy::selector::Selector;
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{PodKey, Price};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::ResourceExt as _;
use rustc_hash::FxHashMap;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// How far a search looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Horizon {
    /// The present: what disruption budgets and consolidateAfter let go now.
    Now,
    /// All the time that is needed: consolidateAfter is over for every node, the pods of PodDisruptionBudgets are healthy, and
    /// a disruption budget is no limit unless it is always zero.
    End,
}

/// The time that ages and schedules are measured by: when the input was recorded, or the present.
#[must_use]
pub fn time_of(input: &Input) -> Timestamp {
    input.recorded_at.unwrap_or_else(|| SystemClock.wall())
}

/// The uid of the controller that would recreate a pod.
fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

/// True if a Job owns the pod.
fn is_of_job(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|o| o.controller == Some(true) && o.kind == "Job")
}

/// True for a pod that is being deleted.
fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn namespace(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

fn key(pod: &Pod) -> PodKey {
    PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any())
}

/// A PodDisruptionBudget that can be read.
struct Budget<'a> {
    name: String,
    selector: Selector,
    object: &'a PodDisruptionBudget,
    /// The facts that decide about evictions, once they are known: it takes a look at every pod of the namespace.
    facts: OnceCell<BudgetFacts>,
}

/// Pods of the input by node, by owner and by namespace, and the PodDisruptionBudgets that cover them.
pub(crate) struct PodIndex<'a> {
    by_node: BTreeMap<&'a str, Vec<&'a Pod>>,
    replicas: BTreeMap<&'a str, usize>,
    /// By namespace, outside of which no budget covers a pod.
    pods: FxHashMap<&'a str, Vec<&'a Pod>>,
    /// By namespace.
    budgets: FxHashMap<&'a str, Vec<Budget<'a>>>,
    /// The pause of all pools.
    cluster_pause: Option<&'a Pause>,
    now: Timestamp,
    horizon: Horizon,
    /// When pods last came to a node or left it, where more is known than the ages of pods tell.
    changed: Option<&'a BTreeMap<String, Timestamp>>,
}

impl<'a> PodIndex<'a> {
    pub(crate) fn new(input: &'a Input, now: Timestamp, horizon: Horizon) -> Self {
        let mut index = Self {
            by_node: BTreeMap::new(),
            replicas: BTreeMap::new(),
            pods: FxHashMap::default(),
            budgets: FxHashMap::default(),
            cluster_pause: cluster_pause(input),
            now,
            horizon,
            changed: None,
        };
        for pod in &input.pods {
            index.pods.entry(namespace(&pod.metadata)).or_default().push(&pod.object);
            let finished = matches!(phase(&pod.object), Some("Succeeded" | "Failed"));
            if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|_| !finished) {
                index.by_node.entry(node).or_default().push(&pod.object);
            }
            if let Some(owner) = owner(&pod.object) {
                *index.replicas.entry(owner).or_default() += 1;
            }
        }
        for budget in &input.budgets {
            let wanted = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
            // The API server refuses selectors that can't be read, so none is missed.
            if let Some(selector) = wanted.and_then(|s| selector(s).ok()) {
                index.budgets.entry(namespace(&budget.metadata)).or_default().push(Budget {
                    name: budget.name_any(),
                    selector,
                    object: &budget.object,
                    facts: OnceCell::new(),
                });
            }
        }
        index
    }

    /// The same with the times at which pods last came to a node or left it.
    pub(super) fn with_changes(self, changed: Option<&'a BTreeMap<String, Timestamp>>) -> Self {
        Self { changed, ..self }
    }

    /// Price and disruption cost of a node that consolidation may consider. An empty node goes whatever it costs: its price may be
    /// unknown.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn candidate(
        &self,
        node: &Node,
        pool: &TenantPool,
        claim_annotated: bool,
        price: Option<Price>,
    ) -> Result<(Option<Price>, Price), String> {
        let on_node = self.by_node.get(node.name_any().as_str()).map(Vec::as_slice).unwrap_or_default();
        let work: Vec<(PodKey, &Pod)> =
            on_node.iter().filter(|pod| !ends_with_node(pod)).map(|pod| (key(pod), *pod)).collect();
        // As the controller: nothing blocks a pod that is on its way out.
        let pods = || {
            work.iter().filter(|(_, pod)| !is_going(pod)).map(|(key, pod)| PodFacts {
                key,
                forbidden: self.forbidden(pod),
                has_controller: owner(pod).is_some(),
            })
        };
        let blocked = |wanted: &PodKey| {
            let (_, pod) = work.iter().find(|(key, _)| key == wanted)?;
            self.eviction_blocked(pod)
        };
        let blocker = || -> Option<DisruptionBlocker> {
            blockers::by_pods(pods(), blocked).or_else(|| blockers::by_bare_pod(pods()))
        };
        // A file doesn't show removed pods, so the youngest pod tells when the pods last changed.
        let changed = self.changed.and_then(|changed| changed.get(&node.name_any()));
        let ages = work.iter().filter_map(|(_, pod)| self.age(pod)).chain(changed.map(|at| self.since(*at)));
        let ages = ages.filter(|_| self.horizon == Horizon::Now);
        let facts = NodeFacts {
            provisioned_by_croft: true,
            works: true,
            standing: self.pause(pool).map(|pause| pause.blocker()).or_else(|| {
                blockers::annotated(has_do_not_disrupt(node), has_do_not_disrupt(pool), claim_annotated)
            }),
            has_work: !work.is_empty(),
            steady_for: ages.min().unwrap_or(Duration::MAX),
            price,
            ..NodeFacts::default()
        };
        let disruption = &pool.spec.disruption;
        let eviction = cost::eviction_cost(disruption);
        let cost = || cost::of_node(eviction, work.iter().map(|(_, pod)| self.moved(pod, disruption.rest())));
        match eligibility::evaluate(&facts, disruption, blocker) {
            Eligibility::Candidate { price } => Ok((Some(price), cost())),
            // An empty node is removed without a search; here it counts as savings, too.
            Eligibility::Settled { status, .. } if status.consolidatable => {
                let after_text = disruption.consolidate_after();
                let after = duration::parse(after_text).ok().flatten().unwrap_or_default();
                if changed.is_some_and(|at| self.since(*at) < after) {
                    return Err(format!(
                        "its last pod ended within the pool's consolidateAfter of {after_text}"
                    ));
                }
                Ok((price, cost()))
            }
            Eligibility::Settled { status, .. } => Err(status.message),
        }
    }

    /// The pause that keeps the pool's nodes now; in time every pause ends.
    fn pause<'p>(&self, pool: &'p TenantPool) -> Option<PauseInForce<'p>>
    where
        'a: 'p,
    {
        let of_pool = pool.spec.disruption.paused.as_ref();
        pause::in_force(self.cluster_pause, of_pool, self.now).filter(|_| self.horizon == Horizon::Now)
    }

    /// The number of pods that a budget covers.
    fn covered(&self, budget: &Budget<'_>) -> i64 {
        count(self.pods_under(budget).count())
    }

    /// The pods that a budget covers.
    fn pods_under<'b>(&'b self, budget: &'b Budget<'_>) -> impl Iterator<Item = &'a Pod> + 'b {
        let pods = self.pods.get(namespace(&budget.object.metadata));
        pods.into_iter().flatten().copied().filter(|pod| budget.selects(pod))
    }

    /// The budgets that cover a pod.
    fn budgets_over<'b>(&'b self, pod: &'b Pod) -> impl Iterator<Item = &'b Budget<'a>> {
        let budgets = self.budgets.get(namespace(&pod.metadata));
        budgets.into_iter().flatten().filter(|budget| budget.selects(pod))
    }

    fn age(&self, pod: &Pod) -> Option<Duration> {
        Some(self.since(pod.status.as_ref()?.start_time.as_ref()?.0))
    }

    fn since(&self, at: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(at)).unwrap_or(Duration::ZERO)
    }

    /// `rest` is that of its pool. In the end no pod has just started.
    fn moved<'p>(&self, pod: &'p Pod, rest: Duration) -> MovedPod<'p> {
        let owner = owner(pod).unwrap_or_default();
        let age = self.age(pod).unwrap_or_default();
        MovedPod {
            owner,
            age_seconds: age.as_secs(),
            rests: self.horizon == Horizon::Now && age < rest,
            ends: is_of_job(pod),
            replicas: self.replicas.get(owner).copied().unwrap_or(1),
            deletion_cost: pod.annotations().get(DELETION_COST).and_then(|v| v.parse().ok()).unwrap_or(0),
        }
    }

    /// What forbids the disruption of a pod; in time, only what never ends.
    pub(crate) fn forbidden(&self, pod: &Pod) -> Option<Forbidden> {
        let wish = PodWish::read(pod.annotations());
        let counts = self.horizon == Horizon::Now || wish.is_lasting();
        wish.forbids(started(pod), self.now).filter(|_| counts)
    }

    fn eviction_blocked(&self, pod: &Pod) -> Option<String> {
        let covering = self.budgets_over(pod);
        let facts = |budget: &Budget<'_>| *budget.facts.get_or_init(|| self.budget_facts(budget));
        let covering = covering.map(|budget| (budget.name.as_str(), facts(budget)));
        Eviction::of(self.guard(pod), covering).blocked()
    }

    /// How far budgets guard a pod. In time it is ready. Of a file's pod that runs and says no more, nothing tells that it
    /// isn't.
    fn guard(&self, pod: &Pod) -> Guard {
        let conditions = || pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        match Guard::of(pod) {
            Guard::Unready if !conditions().any(|c| c.type_ == "Ready") => Guard::Ready,
            _ if self.horizon == Horizon::End && pod.metadata.deletion_timestamp.is_none() => Guard::Ready,
            guard => guard,
        }
    }

    /// The PodDisruptionBudgets for which a pod can't be evicted, with the number of pods that each expects.
    pub(crate) fn blocking_budgets(&self, pod: &Pod) -> Vec<(&'a PodDisruptionBudget, i64)> {
        if self.eviction_blocked(pod).is_none() {
            return Vec::new();
        }
        let covering = self.budgets_over(pod);
        let expected = |budget: &Budget<'_>| {
            let told = budget.object.status.as_ref().and_then(|status| status.expected_pods);
            told.map_or_else(|| self.covered(budget), i64::from)
        };
        covering.map(|budget| (budget.object, expected(budget))).collect()
    }

    /// Each pod of a node that can't be evicted now, with why.
    pub(crate) fn blockers(&self, node: &str) -> Vec<(PodKey, DisruptionBlocker)> {
        let blocker = |pod: &'a Pod| {
            let key = key(pod);
            let facts = || {
                let (forbidden, has_controller) = (self.forbidden(pod), owner(pod).is_some());
                [PodFacts { key: &key, forbidden, has_controller }]
            };
            let found = blockers::by_pods(facts(), |_| self.eviction_blocked(pod));
            let found = found.or_else(|| blockers::by_bare_pod(facts()))?;
            Some((key.clone(), found))
        };
        self.movable(node).filter(|pod| !is_going(pod)).filter_map(blocker).collect()
    }

    /// The pods of a node that would have to be evicted.
    pub(crate) fn movable(&self, node: &str) -> impl Iterator<Item = &'a Pod> + '_ {
        self.by_node.get(node).into_iter().flatten().copied().filter(|pod| !ends_with_node(pod))
    }

    /// The facts that decide about evictions: the budget's status, or what its controller would write there. In time its pods are
    /// healthy.
    fn budget_facts(&self, budget: &Budget<'_>) -> BudgetFacts {
        let is_lasting = self.horizon == Horizon::End;
        if let Some(status) = &budget.object.status {
            let told = BudgetFacts::read(budget.object);
            let lasting = status.expected_pods.zip(status.desired_healthy).filter(|_| is_lasting);
            return lasting.map_or(told, |(expected, desired)| BudgetFacts {
                allowed: i64::from(expected.saturating_sub(desired)),
                ..told
            });
        }
        let expected = self.covered(budget);
        let runs = |pod: &&Pod| phase(pod) == Some("Running") && self.guard(pod) == Guard::Ready;
        let healthy = if is_lasting { expected } else { count(self.pods_under(budget).filter(runs).count()) };
        let spec = budget.object.spec.as_ref();
        let least = match (
            spec.and_then(|s| s.min_available.as_ref()),
            spec.and_then(|s| s.max_unavailable.as_ref()),
        ) {
            (Some(least), _) => scaled(least, expected),
            (None, Some(most)) => expected - scaled(most, expected),
            (None, None) => expected,
        };
        BudgetFacts {
            allowed: healthy - least,
            is_healthy: healthy >= least && least > 0,
            always_allows_unready: always_allows_unready(budget.object),
            is_stale: false,
        }
    }
}

fn started(pod: &Pod) -> Option<Timestamp> {
    pod.status.as_ref()?.start_time.as_ref().map(|at| at.0)
}

/// The annotation by which a pod forbids its disruption at `now`, and until when.
#[must_use]
pub fn forbidden_disruption(pod: &Pod, now: Timestamp) -> Option<String> {
    PodWish::read(pod.annotations()).forbids(started(pod), now).map(|forbidden| forbidden.to_string())
}

/// The pause of voluntary disruption in all pools, in force or not.
pub(crate) fn cluster_pause(input: &Input) -> Option<&Pause> {
    input.configs.get("", SINGLETON)?.spec.disruption.paused.as_ref()
}

/// The zones that the input's CroftConfig closes at `now`.
#[must_use]
pub fn closed_zones(input: &Input, now: Timestamp) -> Vec<&ClosedZone> {
    let config = input.configs.get("", SINGLETON);
    config.into_iter().flat_map(|config| zone::in_force(&config.spec.zones, now)).collect()
}

/// The pause of voluntary disruption that keeps a pool's nodes at `now`, as a sentence.
#[must_use]
pub fn pause_of_pool(input: &Input, pool: &str, now: Timestamp) -> Option<String> {
    let of_pool = input.pools.get("", pool).and_then(|pool| pool.spec.disruption.paused.as_ref());
    pause::in_force(cluster_pause(input), of_pool, now).map(|pause| pause.to_string())
}

fn count(pods: usize) -> i64 {
    i64::try_from(pods).unwrap_or(i64::MAX)
}

/// A number, or a percentage of `all` rounded up, as the disruption controller rounds it.
fn scaled(value: &IntOrString, all: i64) -> i64 {
    match value {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let share: i64 = text.trim_end_matches('%').parse().unwrap_or(100);
            (all * share + 99) / 100
        }
    }
}

impl Budget<'_> {
    /// True if the selector matches a pod of the budget's namespace.
    fn selects(&self, pod: &Pod) -> bool {
        self.selector.matches(|label| pod.labels().get(label).map(String::as_str))
    }
}

/// True if a node, a claim or a pool carries do-not-disrupt.
pub(crate) fn has_do_not_disrupt(object: &impl kube::ResourceExt) -> bool {
    blockers::blocks(object.annotations())
}
