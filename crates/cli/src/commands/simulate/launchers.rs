//! The nodes that are there, whoever launched them, beside Croft's plan for the same pods: for people.

use croft_inspect::{
    amounts::{monthly, per_month},
    comparison::{Comparison, Desired, Launcher, PodGroup, PoolRow, Side, Uncounted},
    inventory::Cost,
};
use croft_scheduler::Price;

use super::{
    report::{Report, Verdict, share},
    text::{bound_premise, relaxed},
};
use crate::{
    costs::{cents, cost_cell, estimate_mark},
    table::{Table, counted, shortened},
};

/// Groups of pods of which one sentence is shown, of each kind.
const GROUPS_SHOWN: usize = 20;

/// The parts of the comparison.
pub(super) fn report(comparison: &Comparison) -> Report<'static> {
    let Comparison { now, planned, .. } = comparison;
    let month = |side: &Side| cents(monthly(side.cost.sum)).micros();
    let difference = comparison.difference.map(|_| month(planned).saturating_sub(month(now)));
    Report {
        changes: &[],
        subject: Some(subject(comparison.desired).to_owned()),
        tables: vec![pools(comparison)],
        lines: lines(comparison),
        verdict: Verdict {
            difference,
            is_estimate: now.cost.estimated || planned.cost.estimated,
            sides: [now.cost, planned.cost].map(monthly_text),
            unit: " a month",
            share: difference.map_or_else(String::new, |difference| share(difference, month(now))),
        },
        notes: notes(comparison),
    }
}

const fn subject(desired: Desired) -> &'static str {
    match desired {
        Desired::Derived => {
            "There is no Tenant and no TenantPool: each group of nodes counts as a pool that may launch its instance families, \
             architectures, capacity types and zones, and each pod stays in its group"
        }
        Desired::Both => {
            "Pods of Tenants are planned in their pools; all others stay in their group of nodes, as if it were a pool"
        }
        Desired::Declared => "All pods are planned in TenantPools",
    }
}

/// A cost of a month in a sentence, which counts unknown prices.
fn monthly_text(cost: Cost) -> String {
    let known = format!("{}{}", estimate_mark(cost.estimated), per_month(cost.sum));
    match cost.unknown {
        0 => known,
        unknown => format!("{known} and {} of unknown price", counted(unknown, "node")),
    }
}

fn pools(comparison: &Comparison) -> Table {
    let mut table =
        Table::new("POOL|LAUNCHED BY|NODES NOW>|$/H NOW>|PLANNED>|$/H PLANNED>|NO LESS THAN>|DIFFERENCE>");
    let row = |name: &str, launchers: String, now: &Side, planned: &Side, bound, difference| {
        vec![
            name.to_owned(),
            launchers,
            now.nodes.to_string(),
            cost_cell(now.cost),
            planned.nodes.to_string(),
            cost_cell(planned.cost),
            or_unknown(bound),
            difference_cell(difference),
        ]
    };
    for PoolRow { pool, launchers, now, planned, lower_bound_per_hour, difference, declared: _ } in
        &comparison.pools
    {
        let launchers: Vec<&str> = launchers.iter().map(|launcher| launcher.as_str()).collect();
        table.row(row(pool, launchers.join(", "), now, planned, *lower_bound_per_hour, *difference));
    }
    let Comparison { now, planned, lower_bound_per_hour, difference, .. } = comparison;
    table.row(row("all", String::new(), now, planned, *lower_bound_per_hour, *difference));
    table
}

fn or_unknown(price: Option<Price>) -> String {
    price.map_or_else(|| "unknown".to_owned(), |price| price.to_string())
}

fn difference_cell(micros: Option<i64>) -> String {
    let Some(micros) = micros else { return "unknown".to_owned() };
    let amount = Price::from_micros(micros.saturating_abs());
    match micros {
        0 => amount.to_string(),
        less if less < 0 => format!("-{amount}"),
        _ => format!("+{amount}"),
    }
}

/// A sentence for each group of pods that the plan wouldn't leave as they are.
fn lines(comparison: &Comparison) -> Vec<String> {
    let Comparison { moves, waits, refused, .. } = comparison;
    let mut lines = Vec::new();
    let mut add = |groups: &[PodGroup], what: &dyn Fn(&PodGroup) -> String| {
        let sentence = |group: &PodGroup| {
            let PodGroup { pods, from, to: _, why } = group;
            let pending = if from.is_some() { "pod" } else { "pending pod" };
            let of = from.as_ref().map_or_else(String::new, |from| format!(" of {from}"));
            let count = counted(pods.len(), pending);
            format!("{count}{of} would {}: {why} ({})", what(group), shortened(pods, 3))
        };
        lines.extend(groups.iter().take(GROUPS_SHOWN).map(sentence));
        let pods: usize = groups.iter().skip(GROUPS_SHOWN).map(|group| group.pods.len()).sum();
        if pods > 0 {
            lines.push(format!("and {} more, which -o json names", counted(pods, "pod")));
        }
    };
    add(moves, &|group| format!("move to {}", group.to.as_deref().unwrap_or("no pool")));
    add(waits, &|_| "wait".to_owned());
    add(refused, &|_| "be refused".to_owned());
    lines
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let Comparison { now, planned, waiting_now, uncounted, .. } = comparison;
    let mut notes = Vec::new();
    for (side, name) in [(now, "now"), (planned, "planned")] {
        if side.cost.unknown > 0 {
            let nodes = counted(side.cost.unknown, "node");
            notes.push(format!(
                "{name}: {nodes} of unknown price, which no sum has: give a catalogue with --catalog"
            ));
        }
    }
    if *waiting_now > 0 {
        let pods = counted(*waiting_now, "pending pod");
        notes.push(format!("the plan has a place for {pods}, which the nodes that are there don't have"));
    }
    let unsaid = comparison.nodes_of_unsaid_capacity_type;
    if unsaid > 0 {
        let nodes = counted(unsaid, "node");
        notes.push(format!("{nodes} priced as on-demand: no label says how it is paid for"));
    }
    if comparison.pools.iter().any(|row| row.launchers.contains(&Launcher::AutoMode)) {
        notes.push(
            "EKS Auto Mode charges for each node beside its instance, and runs network agents that aren't DaemonSets: neither counts"
                .to_owned(),
        );
    }
    notes.extend(left_out(uncounted));
    notes.extend(about_bound(comparison));
    if now.cost.estimated || planned.cost.estimated {
        notes.push("~ marks a price that was estimated".to_owned());
    }
    notes
}

/// Nodes and pods that neither side counts.
fn left_out(uncounted: &Uncounted) -> Vec<String> {
    let Uncounted {
        nodes,
        pods_on_them,
        static_pods,
        pods_elsewhere,
        pods_of_unknown_daemon_sets,
        missing_pods,
    } = uncounted;
    let mut notes = Vec::new();
    if !nodes.is_empty() {
        let kinds: Vec<String> =
            nodes.iter().map(|(kind, count)| counted(*count, &format!("{} node", kind.as_str()))).collect();
        let pods = counted(*pods_on_them, "pod");
        notes.push(format!("not compared: {}, with {pods}", kinds.join(", ")));
    }
    for (count, why) in [
        (static_pods, "static: it comes and goes with its node"),
        (pods_elsewhere, "on a node that the input doesn't have"),
        (
            pods_of_unknown_daemon_sets,
            "of a DaemonSet that the input doesn't have: planned nodes have no room for it",
        ),
        (missing_pods, "wanted by a workload and not created"),
    ] {
        if *count > 0 {
            notes.push(format!("not compared: {}, each {why}", counted(*count, "pod")));
        }
    }
    notes
}

fn about_bound(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.lower_bound_per_hour.is_some() && comparison.planned.nodes > 0 {
        let of = bound_premise(comparison.bound_given_domains, comparison.bound_given_weights);
        let relaxed: Vec<&str> = comparison.bound_relaxes.iter().map(|one| relaxed(*one)).collect();
        let without = match relaxed.as_slice() {
            [] => String::new(),
            names => format!(", even without {}", names.join(", ")),
        };
        notes.push(format!("no plan for the same pods{of} costs less than the bound{without}"));
    }
    if comparison.cut_short {
        notes.push("the search was cut short: a cheaper plan may exist".to_owned());
    }
    notes
}
