//! Steering: nodes that consolidation would like to remove get a taint that kube-scheduler avoids, so that they empty by
//! themselves instead of being filled anew.
//!
//! kube-scheduler prefers the emptiest node. That is the one whose removal is nearest to paying, so new pods keep it alive,
//! or are evicted from it soon after. With PreferNoSchedule they go elsewhere while there is room elsewhere; where there is
//! none they still go there, so that no instance is launched for the taint. Plans prefer nodes without it for the same
//! reason.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    NodeClaim, TenantPool, condition::INITIALIZED, disruption::ConsolidationPolicy, duration,
    pool::Provisioner,
};
use croft_disruption::eligibility::ConsolidationStatus;
use croft_scheduler::{
    Price,
    consolidation::{Consolidation, Rejection},
};

use crate::{
    action::Key,
    definitions::{conditions as reasons, keys},
    disruption::consolidation_status::ConsolidationStatuses,
    kube_api::Verb,
    nodeclaim::{node_patch, writes::patch_node},
    reconcile::ReconcileContext,
    state::{NodeView, Snapshot, has_condition},
    time::earliest,
};

/// Between two rounds: the search runs no oftener than every ten seconds.
const EVERY: Duration = Duration::from_secs(5);
/// One of so many nodes of a pool may have the taint, rounded up, and one stays without it. kube-scheduler spreads a
/// workload over what is left: with a third gone its choice is still that of a pool of ordinary size, and the search, which
/// removes a tenth of a pool at once, has several rounds of nodes that empty meanwhile.
const ONE_OF: usize = 3;
/// Savings of at least one part in so many of what the removal needs. A node further off keeps most of its pods for days,
/// and others would empty sooner.
const NEAR: i64 = 4;
/// The search must have liked to remove the node for this long: most of what it finds is removed or refuted sooner.
const ON_AFTER: Duration = Duration::from_secs(60);
/// A command waits for its replacements for about a minute, and pods that come meanwhile move twice. One without
/// replacements cordons its nodes at once, and needs no taint.
const ON_AFTER_COMMAND: Duration = Duration::from_secs(5);
/// The search must have had no such wish for this long: pods come and go for a while when the load changes.
const OFF_AFTER: Duration = Duration::from_secs(300);
/// At most 20 writes per round, so that other actions are not delayed.
const WRITES_PER_ROUND: usize = 20;

/// The reason of [`Rejection::BelowMinSavings`].
const BELOW_MIN_SAVINGS: &str = "BelowMinSavings";
/// Reasons that pass by themselves, and say nothing about what the removal would save.
const PASSING: [&str; 9] = [
    "Budget",
    "Busy",
    "CommandInFlight",
    "ConsolidateAfterPending",
    "Empty",
    "NotTried",
    "PDBBlocked",
    "PodsNominated",
    "SchedulerWouldNotFit",
];

/// The wish about a node that its status tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// It is to be emptied, and its removal lacks these savings.
    Empties { lacks: Price, after: Duration },
    /// It stays.
    Stays,
    /// Nothing: what the last search said holds.
    Unknown,
}

/// The last wish that said something. Times are on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    empties: bool,
    since: Duration,
    lacks: Price,
    after: Duration,
}

/// Taints and untaints nodes. Losing its memory makes waits start anew.
#[derive(Debug, Default)]
pub struct Steering {
    /// Savings of a removal, and what it needs, by node, as the last search about its pool said.
    savings: BTreeMap<String, (Price, Price)>,
    /// By node.
    answers: BTreeMap<String, Answer>,
    /// The last round.
    decided: Option<Duration>,
}

/// A node in a round.
#[derive(Clone, Copy, Debug)]
struct Steered<'a> {
    name: &'a str,
    tainted: bool,
    /// `None`: the taint goes at once.
    answer: Option<Answer>,
}

/// A write of a node's taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step<'a> {
    Taint(&'a str),
    Untaint(&'a str),
}

impl Steering {
    /// Takes in the result of a search.
    pub fn observe(&mut self, found: &Consolidation) {
        for (node, rejection) in &found.rejections {
            if let Rejection::BelowMinSavings { saves, needs } = rejection {
                self.savings.insert(node.clone(), (*saves, *needs));
            }
        }
    }

    /// Writes the taints that differ from what the statuses say.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, statuses: &ConsolidationStatuses) {
        let snapshot = ctx.snapshot;
        let now = ctx.now.mono;
        if let Some(decided) = self.decided
            && !ctx.has_lasted(decided, EVERY)
        {
            return;
        }
        self.decided = Some(now);
        self.savings.retain(|node, _| snapshot.nodes().contains_key(node));
        self.answers.retain(|node, _| snapshot.nodes().contains_key(node));
        let (mut left, mut next) = (WRITES_PER_ROUND, None);
        for (pool_name, pool) in snapshot.pools() {
            let steers = ctx.settings.steers && is_steered(pool);
            let nodes: Vec<Steered<'_>> = snapshot
                .claims_of_pool(pool_name)
                .filter_map(|(claim_name, claim)| {
                    let (name, node) = working_node(snapshot, claim)?;
                    // Room that a pool keeps on purpose is no waste.
                    let headroom = snapshot.has_headroom_on(name) || snapshot.has_headroom_on(claim_name);
                    let tainted = node.has_taint(keys::TO_BE_EMPTIED_TAINT);
                    let answer = if steers && !headroom {
                        self.ask(name, statuses.status(claim_name), tainted, now)
                    } else {
                        // Headroom has no places while a plan assigns them anew: then the node waits from the beginning.
                        self.answers.remove(name);
                        None
                    };
                    Some(Steered { name, tainted, answer })
                })
                .collect();
            let (writes, again) = steps(&nodes, now);
            next = earliest(next, again);
            for step in writes {
                let (Step::Taint(name) | Step::Untaint(name)) = step;
                let Some(node) = snapshot.nodes().get(name) else { continue };
                if left == 0 || !ctx.is_idle(&Key::Node(name.to_owned())) {
                    next = earliest(next, Some(now.saturating_add(EVERY)));
                    continue;
                }
                left -= 1;
                let patch = match step {
                    Step::Taint(_) => node_patch::avoid(node, ctx.now.wall),
                    Step::Untaint(_) => node_patch::welcome(node),
                };
                ctx.request(patch_node(name, Verb::JsonPatch(patch)));
            }
        }
        if let Some(next) = next {
            ctx.requeue_at(next);
        }
    }

    /// The last answer about a node, with what its status says now.
    fn ask(
        &mut self,
        node: &str,
        status: Option<&ConsolidationStatus>,
        tainted: bool,
        now: Duration,
    ) -> Option<Answer> {
        let wish = status.map_or(Wish::Unknown, |status| wish(status.reason, self.savings.get(node)));
        let known = self.answers.get(node).copied();
        let answer = next_answer(known, wish, tainted, now);
        if let Some(answer) = answer.filter(|_| answer != known) {
            self.answers.insert(node.to_owned(), answer);
        }
        answer
    }
}

/// A claim's node that works for its pool: it is neither being registered nor removed.
fn working_node<'s>(snapshot: &'s Snapshot, claim: &NodeClaim) -> Option<(&'s str, &'s NodeView)> {
    let (name, node) = snapshot.node_of(claim)?;
    let leaves = claim.metadata.deletion_timestamp.is_some()
        || node.deleting
        || node.has_taint(keys::DISRUPTED_TAINT)
        || !has_condition(claim, INITIALIZED);
    (!leaves).then_some((name, node))
}

/// True if nodes of the pool are removed since their pods would cost less elsewhere.
fn is_steered(pool: &TenantPool) -> bool {
    let spec = &pool.spec;
    spec.provisioner == Provisioner::Croft
        && spec.replicas.is_none()
        && pool.metadata.deletion_timestamp.is_none()
        && spec.disruption.consolidation_policy == ConsolidationPolicy::WhenEmptyOrUnderutilized
        && matches!(duration::parse(spec.disruption.consolidate_after()), Ok(Some(_)))
}

/// The wish that a status tells. `savings` are those of the node's removal, and what it needs.
fn wish(reason: &str, savings: Option<&(Price, Price)>) -> Wish {
    match reason {
        reasons::REPLACING => Wish::Empties { lacks: Price::ZERO, after: ON_AFTER_COMMAND },
        // Commands that could not be started yet: budgets, locks, pods that have changed.
        reasons::CONSOLIDATION_CANDIDATE => Wish::Empties { lacks: Price::ZERO, after: ON_AFTER },
        BELOW_MIN_SAVINGS => match savings {
            None => Wish::Unknown,
            Some((saves, needs)) if saves.micros().saturating_mul(NEAR) >= needs.micros() => {
                Wish::Empties { lacks: needs.saturating_sub(*saves), after: ON_AFTER }
            }
            Some(_) => Wish::Stays,
        },
        reason if PASSING.contains(&reason) => Wish::Unknown,
        _ => Wish::Stays,
    }
}

/// The answer after a wish. A node that has the taint from before this process has an answer from its first round on.
fn next_answer(known: Option<Answer>, wish: Wish, tainted: bool, now: Duration) -> Option<Answer> {
    let new = |empties, lacks, after| {
        let since = known.filter(|known| known.empties == empties).map_or(now, |known| known.since);
        Some(Answer { empties, since, lacks, after })
    };
    match wish {
        Wish::Empties { lacks, after } => new(true, lacks, after),
        Wish::Stays => new(false, Price::MAX, ON_AFTER),
        Wish::Unknown if known.is_none() && tainted => new(false, Price::MAX, ON_AFTER),
        Wish::Unknown => known,
    }
}

/// How many of a pool's nodes may have the taint.
fn most(nodes: usize) -> usize {
    nodes.div_ceil(ONE_OF).min(nodes.saturating_sub(1))
}

/// The writes for the nodes of one pool, and when there may be others.
fn steps<'a>(nodes: &[Steered<'a>], now: Duration) -> (Vec<Step<'a>>, Option<Duration>) {
    let (mut steps, mut next) = (Vec::new(), None);
    let lacks = |node: &Steered<'_>| node.answer.map_or(Price::MAX, |answer| answer.lacks);
    let mut due = |answer: Answer, after: Duration| {
        let at = answer.since.saturating_add(after);
        if at > now {
            next = earliest(next, Some(at));
        }
        at <= now
    };
    let mut sorted: Vec<&Steered<'a>> = nodes.iter().collect();
    sorted.sort_by_key(|node| (lacks(node), node.name));
    let mut left = most(nodes.len());
    for node in sorted.iter().filter(|node| node.tainted) {
        let stays = node.answer.is_some_and(|answer| answer.empties || !due(answer, OFF_AFTER));
        if stays && left > 0 {
            left -= 1;
        } else {
            steps.push(Step::Untaint(node.name));
        }
    }
    for node in sorted.iter().filter(|node| !node.tainted) {
        if left > 0 && node.answer.is_some_and(|answer| answer.empties && due(answer, answer.after)) {
            left -= 1;
            steps.push(Step::Taint(node.name));
        }
    }
    (steps, next)
}

#[cfg(test)]
mod tests {
    use croft_disruption::eligibility;

    use super::*;

    const NOW: Duration = Duration::from_secs(10_000);

    fn ago(seconds: u64) -> Duration {
        NOW.saturating_sub(Duration::from_secs(seconds))
    }

    fn empties(name: &str, tainted: bool, seconds: u64, lacks: i64) -> Steered<'_> {
        let answer =
            Answer { empties: true, since: ago(seconds), lacks: Price::from_micros(lacks), after: ON_AFTER };
        Steered { name, tainted, answer: Some(answer) }
    }

    fn stays(name: &str, tainted: bool, seconds: u64) -> Steered<'_> {
        let answer = Answer { empties: false, since: ago(seconds), lacks: Price::MAX, after: ON_AFTER };
        Steered { name, tainted, answer: Some(answer) }
    }

    #[test]
    fn a_third_of_a_pool_has_the_taint_and_one_node_never() {
        let expected = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (6, 2), (7, 3), (100, 34)];
        for (nodes, most_of_them) in expected {
            assert_eq!(most(nodes), most_of_them, "{nodes} nodes");
        }
    }

    #[test]
    fn the_nodes_nearest_to_paying_get_the_taint_once_they_have_been_wanted_for_a_minute() {
        let rest = [stays("x", false, 9_000), stays("y", false, 9_000), stays("z", false, 9_000)];
        let near = [empties("a", false, 60, 30), empties("b", false, 60, 10), empties("c", false, 60, 20)];
        let all: Vec<_> = near.into_iter().chain(rest).collect();
        assert_eq!(steps(&all, NOW), (vec![Step::Taint("b"), Step::Taint("c")], None));
        // One that is wanted since lately leaves its place to the next, and is looked at again.
        let early = [empties("a", false, 60, 30), empties("b", false, 59, 10), empties("c", false, 60, 20)];
        let all: Vec<_> = early.into_iter().chain(rest).collect();
        let (taken, next) = steps(&all, NOW);
        assert_eq!(taken, [Step::Taint("c"), Step::Taint("a")]);
        assert_eq!(next, Some(NOW.saturating_add(Duration::from_secs(1))));
    }

    #[test]
    fn the_taint_goes_after_five_minutes_without_a_wish_and_at_once_where_nothing_is_steered() {
        let pool = |node| [node, stays("y", false, 9_000), stays("z", false, 9_000)];
        let again = Some(NOW.saturating_add(Duration::from_secs(1)));
        assert_eq!(steps(&pool(stays("a", true, 299)), NOW), (Vec::new(), again));
        assert_eq!(steps(&pool(stays("a", true, 300)), NOW), (vec![Step::Untaint("a")], None));
        let given_back = Steered { name: "a", tainted: true, answer: None };
        assert_eq!(steps(&pool(given_back), NOW), (vec![Step::Untaint("a")], None));
        // As it should be already.
        assert_eq!(steps(&pool(empties("a", true, 9_000, 1)), NOW), (Vec::new(), None));
        assert_eq!(
            steps(&pool(Steered { name: "a", tainted: false, answer: None }), NOW),
            (Vec::new(), None)
        );
    }

    #[test]
    fn a_pool_that_has_become_smaller_has_the_taint_on_fewer_nodes() {
        let nodes = [empties("a", true, 9_000, 5), empties("b", true, 9_000, 1), stays("c", false, 9_000)];
        assert_eq!(steps(&nodes, NOW).0, [Step::Untaint("a")]);
        // A node that waits for the end of its taint has its place until then.
        let nodes = [stays("a", true, 10), empties("b", false, 9_000, 1), stays("c", false, 9_000)];
        assert!(steps(&nodes, NOW).0.is_empty());
    }

    #[test]
    fn savings_of_a_quarter_of_what_a_removal_needs_are_a_wish() {
        let price = Price::from_micros;
        let below = |saves, needs| wish("BelowMinSavings", Some(&(price(saves), price(needs))));
        assert_eq!(below(25, 100), Wish::Empties { lacks: price(75), after: ON_AFTER });
        assert_eq!(below(24, 100), Wish::Stays);
        // Of a search before this process.
        assert_eq!(wish("BelowMinSavings", None), Wish::Unknown);
        for (reason, expected) in [
            ("Replacing", Wish::Empties { lacks: Price::ZERO, after: ON_AFTER_COMMAND }),
            ("ConsolidationCandidate", Wish::Empties { lacks: Price::ZERO, after: ON_AFTER }),
            ("ConsolidateAfterPending", Wish::Unknown),
            ("Budget", Wish::Unknown),
            ("NoSaving", Wish::Stays),
            ("ReceivesPods", Wish::Stays),
            ("PodDoNotDisrupt", Wish::Stays),
            ("ProvisionedElsewhere", Wish::Stays),
        ] {
            assert_eq!(wish(reason, None), expected, "{reason}");
        }
    }

    #[test]
    fn each_reason_that_is_compared_is_one_that_is_written() {
        let rejections = [
            Rejection::PodsUnschedulable(String::new()),
            Rejection::NoSaving { elsewhere: None },
            Rejection::BelowMinSavings { saves: Price::ZERO, needs: Price::ZERO },
            Rejection::SchedulerWouldNotFit,
            Rejection::FewSpotOptions(0),
            Rejection::ReceivesPods,
            Rejection::Busy,
            Rejection::Budget,
            Rejection::NotTried,
        ];
        let mut written: Vec<&str> = rejections.iter().map(Rejection::reason).collect();
        written.extend(eligibility::REASONS.iter().map(|(reason, _)| *reason));
        written.extend(reasons::REASONS.iter().map(|reason| reason.name));
        for reason in PASSING.iter().chain(eligibility::TRANSIENT).chain([&BELOW_MIN_SAVINGS]) {
            assert!(written.contains(reason), "{reason}");
        }
    }

    #[test]
    fn an_answer_lasts_until_another_and_a_taint_without_one_is_not_wanted() {
        let wanted = Wish::Empties { lacks: Price::ZERO, after: ON_AFTER };
        let first = next_answer(None, wanted, false, ago(90));
        assert_eq!(first.map(|answer| (answer.empties, answer.since)), Some((true, ago(90))));
        assert_eq!(next_answer(first, Wish::Unknown, true, NOW), first);
        assert_eq!(next_answer(first, wanted, true, NOW), first, "it keeps its beginning");
        let then = next_answer(first, Wish::Stays, true, NOW);
        assert_eq!(then.map(|answer| (answer.empties, answer.since)), Some((false, NOW)));
        assert_eq!(next_answer(None, Wish::Unknown, false, NOW), None);
        let after_restart = next_answer(None, Wish::Unknown, true, NOW);
        assert_eq!(after_restart.map(|answer| (answer.empties, answer.since)), Some((false, NOW)));
    }
}
