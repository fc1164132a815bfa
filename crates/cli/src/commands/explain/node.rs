//! One node: whose it is, what it costs, and why it is kept.

use std::io::Write as _;

use croft_api::{
    NodeClaim, TenantPool,
    condition::{INITIALIZED, REGISTERED, is_true},
    definitions::DEFECTS,
    stored::HasConditions as _,
};
use croft_inspect::{
    admission::Admission,
    advice::Focus,
    inventory::{self, NodeInfo},
    simulation::{WITHOUT_CLAIM, closed_zones, forbidden_disruption, node_outlook, pause_of_pool, time_of},
    workload::controller,
};
use croft_manifest::Input;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use kube::ResourceExt as _;

use super::{
    objects::{named, write_conditions, write_violations},
    pool::users,
    prices::write_prices,
};
use crate::{
    costs::estimate_mark,
    failure::Failure,
    output::Output,
    table::{BAD, BOLD, NAME, NOTE, counted, shortened},
};

/// Explains one node: pool, users, price, violations, claim, and whether it could be removed.
pub(super) fn explain(input: &Input, name: &str, out: &mut Output) -> Result<(), Failure> {
    let node = named(&input.nodes, "node", name)?;
    let admission = Admission::new(input)?;
    let info = inventory::node_info(&node.object, input, &croft_cloud::builtin_catalog());
    let ready = if info.ready { "ready" } else { "not ready" };
    writeln!(
        out,
        "{BOLD}Node {name}{BOLD:#}: {ready}, {} in {}, {}",
        info.instance_type, info.zone, info.capacity_type
    )?;
    let Some(pool_name) = &info.pool else {
        writeln!(out, "  it has no pool's label: Croft doesn't manage it")?;
        return Ok(());
    };
    let users = users(input, pool_name);
    let template = info.template.as_ref().map(|name| format!(", template {name}")).unwrap_or_default();
    writeln!(
        out,
        "  pool {NAME}{pool_name}{NAME:#}{template}, used by {}",
        if users.is_empty() { "no tenant".to_owned() } else { shortened(&users, 5) }
    )?;
    writeln!(
        out,
        "  {}",
        info.price.map_or_else(
            || "price unknown".to_owned(),
            |p| format!("costs {}${p}/h", estimate_mark(info.estimated))
        )
    )?;
    for zone in closed_zones(input, time_of(input)).into_iter().filter(|zone| zone.name == info.zone) {
        writeln!(out, "  {NOTE}{zone}{NOTE:#}")?;
    }
    for finding in
        croft_policy::audit::node(admission.tenants(), &croft_api::convert::policy::node(&node.object))
    {
        writeln!(out, "  {BAD}{}{BAD:#}", finding.message)?;
    }
    match info.claim.as_ref().and_then(|claim| input.claims.get("", claim)) {
        Some(claim) => {
            writeln!(out, "  NodeClaim {}", claim.name_any())?;
            let conditions = claim.conditions();
            write_conditions(conditions, out)?;
            if let Some(at) = input.pools.get("", pool_name).and_then(|pool| uninitialized_until(claim, pool))
            {
                writeln!(out, "  {NOTE}it is replaced unless it is initialized by {at}{NOTE:#}")?;
            }
            // Until it is initialized, the time above alone counts.
            let is_repaired = is_true(conditions, INITIALIZED) && claim.metadata.deletion_timestamp.is_none();
            if let Some(pool) = input.pools.get("", pool_name).filter(|_| is_repaired) {
                write_defects(&node.object, pool, out)?;
            }
        }
        None if input.claims.is_empty() => {
            writeln!(out, "  no NodeClaim is in the input: the node counts as launched by Croft")?;
        }
        None => writeln!(out, "  {WITHOUT_CLAIM}")?,
    }
    let pods: Vec<&Pod> =
        inventory::active_pods(input).filter(|p| inventory::node_of(p) == Some(name)).collect();
    let daemons = pods.iter().filter(|p| is_daemon(p)).count();
    let others: Vec<&&Pod> = pods.iter().filter(|p| !is_daemon(p)).collect();
    write_violations(admission.tenants(), &pods, out)?;
    workload(input, &info, daemons, &others, out)
}

/// When a registered node that isn't initialized is replaced.
fn uninitialized_until(claim: &NodeClaim, pool: &TenantPool) -> Option<String> {
    let conditions = &claim.status.as_ref()?.conditions;
    if is_true(conditions, INITIALIZED) || !is_true(conditions, REGISTERED) {
        return None;
    }
    let registered =
        conditions.iter().find(|condition| condition.type_ == REGISTERED)?.last_transition_time.0;
    let within = SignedDuration::try_from(pool.spec.disruption.initialization_timeout()?).ok()?;
    let at = registered.checked_add(within).ok()?;
    Some(written(at))
}

/// Writes the conditions of a node for which it is replaced, and when.
fn write_defects(node: &Node, pool: &TenantPool, out: &mut Output) -> Result<(), Failure> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    for condition in conditions.into_iter().flatten() {
        let NodeCondition { type_: kind, status, last_transition_time: Some(since), .. } = condition else {
            continue;
        };
        // A monitoring agent that says Unknown may be away.
        let is_defect = status == "False" || kind == "Ready" && status == "Unknown";
        if !is_defect || !DEFECTS.contains(&kind.as_str()) {
            continue;
        }
        let tolerated = pool.spec.disruption.repair_after(kind).map(SignedDuration::try_from);
        let outcome = match tolerated {
            None => "repairAfter of the pool tolerates that for ever".to_owned(),
            Some(tolerated) => {
                let at = tolerated.ok().and_then(|tolerated| since.0.checked_add(tolerated).ok());
                format!("it is replaced at {} at the earliest", written(at.unwrap_or(Timestamp::MAX)))
            }
        };
        writeln!(out, "  {NOTE}{kind} has been {status} since {}{NOTE:#}: {outcome}", written(since.0))?;
    }
    Ok(())
}

fn written(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes whether the node is empty or could be removed, and which pods hinder that.
fn workload(
    input: &Input,
    info: &NodeInfo,
    daemons: usize,
    others: &[&&Pod],
    out: &mut Output,
) -> Result<(), Failure> {
    if others.is_empty() {
        let after = input
            .pools
            .get("", info.pool.as_deref().unwrap_or_default())
            .map(|p| p.spec.disruption.consolidate_after().to_owned())
            .unwrap_or_default();
        let future = match pause_of_pool(input, info.pool.as_deref().unwrap_or_default(), time_of(input)) {
            Some(pause) => format!("kept: {pause}"),
            None if after == "Never" => "kept: the pool's consolidateAfter is Never".to_owned(),
            None => format!("removed once it has been empty for {after}"),
        };
        writeln!(out, "  it is empty ({}) and is {future}", counted(daemons, "DaemonSet pod"))?;
        return Ok(());
    }
    let names: Vec<String> =
        others.iter().map(|p| format!("{}/{}", p.namespace().unwrap_or_default(), p.name_any())).collect();
    let shown = format!("{}: {}", counted(others.len(), "pod"), shortened(&names, 5));
    writeln!(out, "  it runs {shown}")?;
    if info.claim.is_some() || input.claims.is_empty() {
        if let Some(why) = node_outlook(input, croft_cloud::builtin_catalog(), &info.name)? {
            writeln!(out, "  {why}")?;
        }
        write_prices(input, Focus::Node(info.name.clone()), out)?;
    }
    for (pod, name) in others.iter().zip(&names) {
        if let Some(forbidden) = forbidden_disruption(pod, time_of(input)) {
            writeln!(out, "  {NOTE}pod {name} carries {forbidden}{NOTE:#}")?;
        }
        if controller(&pod.metadata).is_none() {
            writeln!(out, "  {NOTE}pod {name} has no controller{NOTE:#}: it would not be recreated")?;
        }
    }
    Ok(())
}

fn is_daemon(pod: &Pod) -> bool {
    controller(&pod.metadata).is_some_and(|o| o.kind == "DaemonSet")
}
