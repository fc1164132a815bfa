//! Solves both sides, and counts what differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_inspect::{
    OfferingIndex,
    admission::Admission,
    inventory::{NodeInfo, tenants_by_namespace, total_cost},
    simulation::{DENIED, Settling, register_coming},
};
use croft_manifest::{Input, InputError};
use croft_scheduler::{CapacityType, InstanceType, Options, PodKey, Price};
use kube::ResourceExt as _;

use super::{
    model::{Comparison, Difference, Figures, LaunchedRow, PendingRow, Row, Side},
    placements::{Parts, Placements},
};
use crate::commands::plan::impact::{Edit, Removal, edit, without_leaving};

/// A recorded cluster, and what changes.
pub(in crate::commands::simulate) struct Question<'a> {
    /// The cluster.
    pub(in crate::commands::simulate) recorded: &'a Input,
    /// Objects to put over those of the cluster.
    pub(in crate::commands::simulate) edit: &'a Input,
    /// Objects to remove.
    pub(in crate::commands::simulate) removals: &'a [Removal],
    /// Instance types and prices.
    pub(in crate::commands::simulate) types: Arc<[InstanceType]>,
    /// The types after the changes, which then also price the recorded nodes; `None` if they stay.
    pub(in crate::commands::simulate) types_after: Option<Arc<[InstanceType]>>,
    /// Options of both sides.
    pub(in crate::commands::simulate) options: Options,
}

/// Compares the cluster under its own settings with the same cluster under the changed ones.
///
/// # Errors
/// Values that the scheduler refuses, by object and field, and objects that can't be removed.
pub(in crate::commands::simulate) fn compare(question: &Question<'_>) -> Result<Comparison, InputError> {
    let Question { recorded, edit: objects, removals, types, types_after, options } = question;
    let mut recorded = (*recorded).clone();
    register_coming(&mut recorded, types);
    let base = without_leaving(&recorded)?;
    let Edit { mut impact, then: _, mut after } = edit(&base, objects, removals)?;
    let begin = Placements::new(&recorded, types);
    let begin_after = match types_after {
        Some(types) => {
            set_prices(&mut recorded, types);
            set_prices(&mut after, types);
            Placements::new(&recorded, types)
        }
        None => begin.clone(),
    };
    let types_after = types_after.as_ref().unwrap_or(types);
    let mut warnings = impact.take_warnings();
    let before = Solved::new(base, begin, types, options)?;
    let after = Solved::new(after, begin_after, types_after, options)?;
    for warning in before.warnings.iter().chain(&after.warnings) {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }
    let (side_before, side_after) = (before.side(), after.side());
    Ok(Comparison {
        recorded_at: recorded.recorded_at.map(|at| at.to_string()),
        changes: impact.objects,
        difference: Difference::new(&side_before.end, &side_after.end),
        before: side_before,
        after: side_after,
        pools: rows(before.pools.union(&after.pools), &before.by_pool(), &after.by_pool()),
        tenants: rows(
            before.tenants.union(&after.tenants),
            &before.by_tenant(&before),
            &after.by_tenant(&before),
        ),
        launched: launched(&before, &after),
        pending: pending(&before, &after),
        warnings,
    })
}

/// One side at the end of consolidation.
struct Solved {
    begin: Placements,
    end: Placements,
    placed: croft_inspect::inventory::Cost,
    pools: BTreeSet<String>,
    tenants: BTreeSet<String>,
    /// Tenants by pool.
    users: BTreeMap<String, BTreeSet<String>>,
    by_namespace: BTreeMap<String, String>,
    /// Why each pending pod has no place.
    pending: BTreeMap<PodKey, String>,
    warnings: Vec<String>,
    steps: u64,
    cut_short: bool,
}

impl Solved {
    fn new(
        input: Input,
        begin: Placements,
        types: &Arc<[InstanceType]>,
        options: &Options,
    ) -> Result<Self, InputError> {
        let mut settling = Settling::new(input, Arc::clone(types), options.clone());
        settling.place_pending()?;
        let placed = total_cost(Placements::new(settling.input(), types).nodes.values());
        settling.consolidate()?;
        let input = settling.input();
        let admission = Admission::new(input)?;
        let end = Placements::new(input, types);
        Ok(Self {
            placed,
            pools: input.pools.iter().map(|pool| pool.name_any()).collect(),
            tenants: input.tenants.iter().map(|tenant| tenant.name_any()).collect(),
            users: input.tenants_by_pool(),
            by_namespace: tenants_by_namespace(input, admission.tenants()),
            pending: reasons(&settling, &end),
            warnings: settling.warnings().to_vec(),
            steps: settling.steps(),
            cut_short: settling.is_cut_short(),
            begin,
            end,
        })
    }

    fn side(&self) -> Side {
        Side {
            recorded: total_cost(self.begin.nodes.values()),
            placed: self.placed,
            end: self.whole(),
            steps: self.steps,
            cut_short: self.cut_short,
        }
    }

    /// The figures of the whole cluster.
    fn whole(&self) -> Figures {
        let of_node = |_: &NodeInfo| vec![""];
        let parts = Parts { of_recorded_node: &of_node, of_node: &of_node, of_pod: &|_, _| Some("") };
        let figures = self.begin.compare(&self.end, self.pending.keys(), &parts);
        figures.get("").copied().unwrap_or_default()
    }

    /// The figures of each pool that has any.
    fn by_pool(&self) -> BTreeMap<&str, Figures> {
        let parts = Parts { of_recorded_node: &pool_of, of_node: &pool_of, of_pod: &|_, pool| pool };
        self.begin.compare(&self.end, self.pending.keys(), &parts)
    }

    /// The figures of each tenant that has any; its recorded nodes are those of its pools under the settings of `recorded`.
    fn by_tenant<'a>(&'a self, recorded: &'a Self) -> BTreeMap<&'a str, Figures> {
        let parts = Parts {
            of_recorded_node: &|node| recorded.users_of(node),
            of_node: &|node| self.users_of(node),
            of_pod: &|pod, _| self.by_namespace.get(&*pod.namespace).map(String::as_str),
        };
        self.begin.compare(&self.end, self.pending.keys(), &parts)
    }

    /// The tenants that use the pool of a node.
    fn users_of(&self, node: &NodeInfo) -> Vec<&str> {
        let users = node.pool.as_ref().and_then(|pool| self.users.get(pool));
        users.into_iter().flatten().map(String::as_str).collect()
    }
}

/// The pool of a node, or none.
fn pool_of(node: &NodeInfo) -> Vec<&str> {
    node.pool.as_deref().into_iter().collect()
}

/// Prices recorded nodes as `types` do, where they have a price.
pub(in crate::commands::simulate) fn set_prices(input: &mut Input, types: &[InstanceType]) {
    let offerings = OfferingIndex::new(types);
    let claims: Vec<_> = input.claims.iter().cloned().collect();
    for claim in claims {
        let mut object = claim.object;
        let Some(status) = &mut object.status else { continue };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (name, zone) = (text(&status.instance_type), text(&status.zone));
        let paid_as = CapacityType::parse(&text(&status.capacity_type)).unwrap_or_default();
        let offering = offerings.offering(&name, &zone, paid_as);
        let Some((price, estimated)) = offering.and_then(|o| Some((o.price?, o.estimated))) else { continue };
        status.price_per_hour = Some(price.to_string());
        status.price_estimated = estimated;
        input.claims.put(object, claim.origin);
    }
}

/// Why each pending pod has no place: in its own pool, or in the first.
fn reasons(settling: &Settling, end: &Placements) -> BTreeMap<PodKey, String> {
    let mut reasons = BTreeMap::new();
    for left in settling.unschedulable() {
        let pool = end.pool_of(&left.pod);
        let own = left.reasons.iter().find(|reason| Some(reason.pool.as_str()) == pool);
        let reason = own.or_else(|| left.reasons.first());
        let text = reason.map_or_else(String::new, |reason| format!("{}: {}", reason.reason, reason.detail));
        reasons.insert(left.pod.clone(), text);
    }
    for denied in settling.denied() {
        for pod in &denied.pods {
            reasons.insert(pod.clone(), format!("{DENIED}: {}", denied.refusal));
        }
    }
    reasons
}

/// A row for each of `names`, in order.
fn rows<'n>(
    names: impl Iterator<Item = &'n String>,
    before: &BTreeMap<&str, Figures>,
    after: &BTreeMap<&str, Figures>,
) -> Vec<Row> {
    let figures = |side: &BTreeMap<&str, Figures>, name: &str| side.get(name).copied().unwrap_or_default();
    names.map(|name| Row::new(name.clone(), figures(before, name), figures(after, name))).collect()
}

/// Instances of either side that weren't recorded and are left at the end.
fn launched(before: &Solved, after: &Solved) -> Vec<LaunchedRow> {
    type Key = (String, String, String, String, Option<Price>);
    let mut counts: BTreeMap<Key, (usize, usize)> = BTreeMap::new();
    let key = |node: &NodeInfo| -> Key {
        let NodeInfo { pool, instance_type, zone, capacity_type, price, .. } = node.clone();
        (pool.unwrap_or_default(), instance_type, zone, capacity_type, price)
    };
    let new = |side: &Solved| -> Vec<Key> {
        let nodes = side.end.nodes.values().filter(|node| !side.begin.nodes.contains_key(&node.name));
        nodes.map(key).collect()
    };
    for node in new(before) {
        counts.entry(node).or_default().0 += 1;
    }
    for node in new(after) {
        counts.entry(node).or_default().1 += 1;
    }
    let row = |((pool, instance_type, zone, capacity_type, price), (before, after))| LaunchedRow {
        pool,
        instance_type,
        zone,
        capacity_type,
        price,
        before,
        after,
    };
    counts.into_iter().map(row).collect()
}

fn pending(before: &Solved, after: &Solved) -> Vec<PendingRow> {
    let pods: BTreeSet<&PodKey> = before.pending.keys().chain(after.pending.keys()).collect();
    let row = |pod: &PodKey| PendingRow {
        pod: pod.to_string(),
        before: before.pending.get(pod).cloned(),
        after: after.pending.get(pod).cloned(),
    };
    pods.into_iter().map(row).collect()
}
