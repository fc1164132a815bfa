//! The decider: the actions that bring the cluster in line with its Tenants, from state and time.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{
    Tenants, Violation, audit,
    definitions::{POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
    node::NodeRepair,
};
use jiff::Timestamp;

use crate::{
    action::{Action, UserEvent},
    definitions::events::NODE_LEFT_POOL,
    kube_api::{Target, Verb},
    nodeclaim::node_patch,
    reconcile::node_reference,
    state::{NodeView, Snapshot},
    tenant::{
        daemonsets, evictions, misplaced,
        namespaces::{is_closed, namespace_writes},
        objects, parameter_writes, placement, pool_status,
        state::State,
        status,
    },
};

/// Compares the cluster with its Tenants and returns the actions that are missing. Every kind that decisions about tenancy
/// wait for has been listed.
#[must_use]
pub fn reconcile(state: &mut State, snapshot: &Snapshot, mono: Duration, wall: Timestamp) -> Vec<Action> {
    let invalid = snapshot.invalid_objects();
    state.absences.confirm(mono);
    if snapshot.has_default_config() {
        state.reset_config();
    }
    let view = state.view();
    state.refresh_nodes();
    let mut actions = Vec::new();
    let active = parameter_writes::is_active(state, &view, mono);
    parameter_writes::observe(state, mono);
    let created = objects::let_in(state, &view, mono);
    let mut kept = objects::compare(state, invalid, &view, created, mono);
    actions.extend(parameter_writes::next_write(state, &view, (active, &kept), mono));
    if active || parameter_writes::is_over(state, &view) {
        actions.extend(namespace_writes(state, invalid, &view, &kept.incomplete, mono));
        actions.append(&mut kept.writes);
    }
    let mut placement = placement::classify(state, &view);
    state.pool_statements = pool_status::pool_statements(state, invalid, &view, &placement.open);
    actions.extend(node_writes(state, snapshot, &placement.open, active));
    count_violations(state, &view, &kept, &mut placement);
    state.violations = std::mem::take(&mut placement.violations);
    // Recreated pods must be admitted for today's tenants, so every replica of the webhook must know them.
    let enforced = status::enforced_everywhere(state, mono);
    let evictions = if enforced { evictions::due(state, &view, &mut placement, mono) } else { Vec::new() };
    actions.extend(status::status_writes(state, snapshot, &view, (&placement, &kept), mono, wall));
    if enforced {
        actions.extend(daemonsets::writes_due(state, &view, mono));
        actions.extend(placement::recreations(state, &view, &placement, mono));
        actions.extend(evictions);
        actions.extend(misplaced::events(state, &view, &placement, mono));
    }
    actions
}

/// Writes of nodes. A node that Croft didn't launch has its pool's own label; pool-name label and taints follow in
/// one patch. Nodes of Croft's pools get them all when their instance is verified to be the claim's. No node is
/// written before a tenant is enforced. One that has only just joined stays closed while its pool is `open` to pods that wait.
fn node_writes(
    state: &mut State,
    snapshot: &Snapshot,
    open: &BTreeMap<String, Vec<String>>,
    active: bool,
) -> Vec<Action> {
    let left = std::mem::take(&mut state.left_pools).into_iter();
    let left = left.filter_map(|(node, pool)| Some(departure(&node, snapshot.nodes().get(&node)?, &pool)));
    let is_open =
        |node: &str| state.nodes.get(node).is_some_and(|pool| pool.iter().any(|p| open.contains_key(p)));
    let missing = state
        .node_repairs
        .iter()
        .filter(|(node, missing)| active && !(missing.is_starting && is_open(node.as_str())));
    let repair = |(node, missing): (&String, &NodeRepair)| {
        let patch = node_patch::repair_membership(snapshot.nodes().get(node)?, missing);
        let verb = Verb::JsonPatch(patch);
        // The patch differs with every version of the node.
        Some(Action::write_once_as(Target::Node(node.clone()), verb, format!("{missing:?}"), Vec::new()))
    };
    left.chain(missing.filter_map(repair)).collect()
}

fn departure(name: &str, node: &NodeView, pool: &str) -> Action {
    let note = format!(
        "node {name} has left TenantPool {pool}: the pool's label was removed. Pods of the pool's tenants stay until they are \
         evicted, the taint until it is removed"
    );
    Action::RecordEvent(UserEvent::warning(node_reference(name, node), NODE_LEFT_POOL, note))
}

/// Counts the violations that `croft audit` would find, without those of pods, and without the pools that closed
/// namespaces lack on purpose.
fn count_violations(
    state: &mut State,
    view: &Tenants,
    kept: &objects::Comparison,
    placement: &mut placement::Placement,
) {
    for finding in audit::declarations(view) {
        *placement.violations.entry(finding.violation).or_default() += 1;
    }
    for finding in state.node_findings() {
        *placement.violations.entry(finding.violation).or_default() += 1;
        if matches!(finding.violation, Violation::NodeUntainted | Violation::NodeInTwoPools) {
            for tenant in &finding.tenants {
                placement.tenants.entry(tenant.clone()).or_default().open.push(finding.name.clone());
            }
        }
    }
    *placement.violations.entry(Violation::NamespaceOpen).or_default() += kept.open;
    for ((namespace, name), daemonset) in &state.daemonsets {
        if daemonset.metadata.deletion_timestamp.is_none() {
            let planned = croft_api::convert::policy::daemonset(daemonset);
            let found = audit::daemonset(view, namespace, name, &planned).is_some();
            *placement.violations.entry(Violation::DaemonSetUnplanned).or_default() += i64::from(found);
        }
    }
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
        let entry =
            |key: &str, value: &Option<String>| value.iter().map(|v| (key.to_owned(), v.clone())).collect();
        let labels: BTreeMap<String, String> = entry(TENANCY_LABEL, &facts.tenancy);
        let mut annotations: BTreeMap<String, String> = entry(POOLS_ANNOTATION, &facts.pools);
        annotations.extend(entry(SHARED_ANNOTATION, &facts.shared));
        if is_closed(view, &kept.incomplete, name, facts) {
            continue;
        }
        let found = audit::namespace(view, name, &labels, &annotations, true).len();
        *placement.violations.entry(Violation::NamespaceMetadataStale).or_default() +=
            i64::try_from(found).unwrap_or(0);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
