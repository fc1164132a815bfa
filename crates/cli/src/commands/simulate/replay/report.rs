//! The comparison of a replayed time: its shape as JSON, which is part of the command line's contract, and its tables.

use std::collections::BTreeMap;

use croft_inspect::{
    amounts::dollars,
    simulation::{Replay, Totals, Usage},
};
use croft_scheduler::Price;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    commands::{
        plan::impact::Edited,
        simulate::report::{Report, Verdict, less, share, signed},
    },
    costs::{cents, estimate_mark, signed_dollars},
    table::{Table, counted},
};

/// A recorded time under its own settings and under others.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands::simulate) struct Comparison {
    from: String,
    to: String,
    /// Snapshots that were read.
    snapshots: usize,
    /// The objects that change.
    changes: Vec<Edited>,
    /// The recorded nodes. Evictions aren't known from snapshots.
    recorded: Cluster,
    /// Simulated under the recorded settings.
    before: Figures,
    /// Simulated under the changed ones.
    after: Figures,
    /// Dollars of `after` less those of `before`.
    difference: f64,
    /// Dollars by pool.
    pools: Vec<Row>,
    #[serde(skip)]
    pub(in crate::commands::simulate) warnings: Vec<String>,
}

/// The nodes of all pools over the time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cluster {
    /// Dollars of the time.
    cost: Price,
    /// True if a price is an estimate.
    estimated: bool,
    /// True if a node has no known price, which the cost lacks.
    unknown_prices: bool,
    node_hours: f64,
    launched: usize,
    removed: usize,
    #[serde(skip)]
    pools: BTreeMap<String, Usage>,
}

/// One simulated side.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    #[serde(flatten)]
    cluster: Cluster,
    /// Pods that consolidation or the edit moved.
    evictions: usize,
    /// Pods without a place, times hours; those that admission refuses included.
    pending_pod_hours: f64,
    #[serde(skip)]
    has_pending: bool,
}

/// Dollars of a pool's nodes.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    recorded: Price,
    before: Price,
    after: Price,
}

impl From<&Totals> for Cluster {
    fn from(totals: &Totals) -> Self {
        let all = totals.all();
        Self {
            cost: cents(all.cost()),
            estimated: all.estimated,
            unknown_prices: all.unknown,
            node_hours: tenths(all.node_hours()),
            launched: totals.launched,
            removed: totals.removed,
            pools: totals.pools.clone(),
        }
    }
}

impl Figures {
    pub(super) fn of(side: &Replay) -> Self {
        Self {
            cluster: side.totals().into(),
            evictions: side.evicted(),
            pending_pod_hours: tenths(side.pending_hours()),
            has_pending: side.pending_hours() > 0.0,
        }
    }
}

/// The replayed time.
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    /// Snapshots in it.
    pub(super) snapshots: usize,
}

impl Comparison {
    pub(super) fn new(
        span: Span,
        changes: Vec<Edited>,
        recorded: Cluster,
        before: Figures,
        after: Figures,
        warnings: Vec<String>,
    ) -> Self {
        let sides = [&recorded.pools, &before.cluster.pools, &after.cluster.pools];
        let mut names: Vec<&String> = sides.iter().flat_map(|pools| pools.keys()).collect();
        names.sort();
        names.dedup();
        let row = |name: &String| {
            let cost = |pools: &BTreeMap<String, Usage>| {
                cents(pools.get(name).map_or(Price::ZERO, |usage| usage.cost()))
            };
            let [recorded, before, after] = sides.map(cost);
            Row { name: name.clone(), recorded, before, after }
        };
        let pools = names.into_iter().map(row).collect();
        Self {
            from: span.from.to_string(),
            to: span.to.to_string(),
            snapshots: span.snapshots,
            changes,
            difference: difference(before.cluster.cost, after.cluster.cost) as f64 / 1e6,
            recorded,
            before,
            after,
            pools,
            warnings,
        }
    }

    /// True if a pod had no place for some time under the changed settings.
    pub(in crate::commands::simulate) const fn has_pending(&self) -> bool {
        self.after.has_pending
    }

    /// The comparison for people.
    pub(in crate::commands::simulate) fn report(&self) -> Report<'_> {
        let Self { from, to, .. } = self;
        let (before, after) = (&self.before.cluster, &self.after.cluster);
        let difference = difference(before.cost, after.cost);
        Report {
            changes: &self.changes,
            subject: Some(format!("{from} to {to}, {}", counted(self.snapshots, "snapshot"))),
            tables: self.tables(),
            lines: Vec::new(),
            verdict: Verdict {
                difference: Some(difference),
                is_estimate: before.estimated || after.estimated,
                sides: [before, after].map(amount_text),
                unit: "",
                share: share(difference, before.cost.micros()),
            },
            notes: self.notes(),
        }
    }

    fn tables(&self) -> Vec<Table> {
        let table = |title: &str| Table::new(&format!("{title}|RECORDED>|BEFORE>|AFTER>|DIFFERENCE>"));
        let (recorded, before, after) = (&self.recorded, &self.before, &self.after);
        let (old, new) = (&before.cluster, &after.cluster);
        let mut totals = table("THE TIME");
        totals.row(vec![
            "cost".to_owned(),
            amount_text(recorded),
            amount_text(old),
            amount_text(new),
            signed_dollars(difference(old.cost, new.cost)),
        ]);
        let number = |value: f64| format!("{value:.1}");
        let change = |value: f64| if value == 0.0 { number(0.0) } else { format!("{value:+.1}") };
        totals.row(vec![
            "node hours".to_owned(),
            number(recorded.node_hours),
            number(old.node_hours),
            number(new.node_hours),
            change(new.node_hours - old.node_hours),
        ]);
        for (title, recorded, old, new) in [
            ("nodes launched", Some(recorded.launched), old.launched, new.launched),
            ("nodes removed", Some(recorded.removed), old.removed, new.removed),
            ("pods evicted", None, before.evictions, after.evictions),
        ] {
            let recorded = recorded.map_or_else(String::new, |count| count.to_string());
            let less = signed(less(new, old));
            totals.row(vec![title.to_owned(), recorded, old.to_string(), new.to_string(), less]);
        }
        let (old, new) = (before.pending_pod_hours, after.pending_pod_hours);
        totals.row(vec![
            "pending pods, hours".to_owned(),
            String::new(),
            number(old),
            number(new),
            change(new - old),
        ]);
        let mut pools = table("POOL");
        for Row { name, recorded, before, after } in &self.pools {
            let [recorded, old, new] = [recorded, before, after].map(|cost| dollars(*cost));
            pools.row(vec![name.clone(), recorded, old, new, signed_dollars(difference(*before, *after))]);
        }
        vec![totals, pools]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "before is simulated as well: compare after with it, and both with what was recorded to see how close the simulation is"
                .to_owned(),
        ];
        let sides = [&self.recorded, &self.before.cluster, &self.after.cluster];
        if sides.iter().any(|side| side.unknown_prices) {
            notes.push("the price of a node isn't known: the costs lack it".to_owned());
        }
        notes
    }
}

fn amount_text(cluster: &Cluster) -> String {
    format!("{}{}", estimate_mark(cluster.estimated), dollars(cluster.cost))
}

/// Micro-dollars.
const fn difference(before: Price, after: Price) -> i64 {
    after.micros().saturating_sub(before.micros())
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
