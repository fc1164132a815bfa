//! Why a pod waits, or why it runs where it does.

use std::io::Write as _;

use croft_api::condition::UNLIMITED;
use croft_policy::NamespaceTenancy;
use croft_scheduler::{Options, PodKey};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::missing;
use crate::{
    admission::{Gate, Outcome},
    costs,
    failure::Failure,
    input::Input,
    output::Output,
    simulate::{is_created, simulate},
    table::{BAD, BOLD, GOOD, NAME, NOTE},
};

pub(super) fn explain(input: &Input, namespace: &str, name: &str, out: &mut Output) -> Result<(), Failure> {
    let Some(pod) = input.pods.get(namespace, name) else {
        let there = input.pods.iter().filter(|p| p.metadata.namespace.as_deref() == Some(namespace));
        return Err(missing(
            &format!("pod in {namespace} called"),
            name,
            there.filter_map(|p| p.metadata.name.as_deref()),
        ));
    };
    let pod = &pod.object;
    let gate = Gate::new(input)?;
    let phase =
        pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_else(|| "not created yet".to_owned());
    writeln!(out, "{BOLD}Pod {namespace}/{name}{BOLD:#}: {phase}")?;
    let verdict = gate.pod(pod);
    match gate.tenants().tenancy(namespace) {
        NamespaceTenancy::Tenant { tenant, .. } => {
            writeln!(out, "  namespace {namespace} belongs to tenant {NAME}{}{NAME:#}", tenant.name)?;
        }
        NamespaceTenancy::NonTenant => writeln!(out, "  namespace {namespace} belongs to nobody")?,
        NamespaceTenancy::Exempt => {
            writeln!(out, "  namespace {namespace} is exempt: Croft leaves it alone")?
        }
        NamespaceTenancy::Unknown => writeln!(out, "  namespace {namespace} isn't known")?,
        NamespaceTenancy::TenantUnreadable => {
            writeln!(out, "  namespace {namespace} belongs to a Tenant that can't be read")?
        }
    }
    match (&verdict.outcome, &verdict.pool) {
        (Outcome::Denied(refusal), _) => {
            writeln!(out, "  {BAD}made now, it would be refused{BAD:#}: {refusal}")?
        }
        (Outcome::Changed(_), Some(pool)) if is_created(pod) => writeln!(
            out,
            "  {NOTE}it isn't pinned to pool {pool}{NOTE:#}: it was made before its tenant was known; delete it, and its controller makes it anew"
        )?,
        (Outcome::Changed(_), None) if is_created(pod) => {
            writeln!(out, "  {NOTE}it isn't kept off the pools{NOTE:#}: it was made before they were known")?;
        }
        (_, Some(pool)) => writeln!(out, "  pool {NAME}{pool}{NAME:#}")?,
        _ => {}
    }
    match costs::node_of(pod) {
        Some(node) => placed(input, &gate, pod, node, out),
        None => pending(input, pod, namespace, name, out),
    }
}

fn placed(input: &Input, gate: &Gate, pod: &Pod, node: &str, out: &mut Output) -> Result<(), Failure> {
    write!(out, "  runs on node {NAME}{node}{NAME:#}")?;
    match input.nodes.get("", node) {
        Some(object) => {
            let machine = costs::machine(&object.object, input, &croft_cloud::builtin_catalog());
            let pool = machine.pool.map_or_else(|| "no pool".to_owned(), |p| format!("pool {p}"));
            writeln!(
                out,
                " of {pool} ({}, {}, {})",
                or(&machine.instance_type),
                or(&machine.zone),
                or(&machine.capacity_type)
            )?;
        }
        None => writeln!(out, ", which isn't known")?,
    }
    let wrong = costs::misplaced(gate.tenants(), pod);
    if wrong.is_empty() {
        writeln!(out, "  {GOOD}it is where it may be{GOOD:#}")?;
    }
    for message in wrong {
        writeln!(out, "  {BAD}it mustn't be there{BAD:#}: {message}")?;
    }
    Ok(())
}

fn pending(input: &Input, pod: &Pod, namespace: &str, name: &str, out: &mut Output) -> Result<(), Failure> {
    let spec = pod.spec.clone().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        writeln!(out, "  it is being deleted: nothing is launched for it")?;
        return Ok(());
    }
    let gates: Vec<String> = spec.scheduling_gates.iter().flatten().map(|g| g.name.clone()).collect();
    if !gates.is_empty() {
        writeln!(out, "  it waits for its scheduling gates: {}", gates.join(", "))?;
        return Ok(());
    }
    if let Some(other) = spec.scheduler_name.as_deref().filter(|s| *s != "default-scheduler") {
        writeln!(out, "  it is for the scheduler {other}: Croft launches nothing for it")?;
        return Ok(());
    }
    if let Some(node) =
        pod.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).filter(|n| !n.is_empty())
    {
        writeln!(out, "  it is nominated for node {node}")?;
    }
    let simulation = simulate(input, croft_cloud::builtin_catalog(), &Options::default())?;
    let key = PodKey::new(namespace, name);
    if let Some(machine) = simulation.plan.machines.iter().find(|m| m.pods.contains(&key)) {
        writeln!(
            out,
            "  {GOOD}a machine can be launched for it{GOOD:#}: {} in {}, {}, in pool {}, {}${}/h, for {} pods",
            machine.instance_type,
            machine.zone,
            machine.capacity_type,
            machine.pool,
            costs::mark(simulation.is_estimate(machine)),
            machine.price,
            machine.pods.len()
        )?;
        let pool = input.pools.get("", &machine.pool);
        let conditions =
            pool.and_then(|p| p.status.as_ref()).map(|s| s.conditions.clone()).unwrap_or_default();
        for condition in conditions.iter().filter(|c| c.status == "False" && c.type_ != UNLIMITED) {
            writeln!(
                out,
                "  {NOTE}but pool {} says {}{NOTE:#}: {}",
                machine.pool, condition.type_, condition.message
            )?;
        }
        return Ok(());
    }
    if let Some(node) = simulation.plan.existing.iter().find(|n| n.pods.contains(&key)) {
        let what = if node.coming { "machine on its way" } else { "node" };
        writeln!(out, "  {GOOD}the {what} {} has room for it{GOOD:#}; kube-scheduler binds it", node.node)?;
        return Ok(());
    }
    let left = simulation.plan.unschedulable.iter().find(|u| u.pod == key);
    for reason in left.iter().flat_map(|l| l.reasons.iter()) {
        let pool = if reason.pool.is_empty() { String::new() } else { format!("pool {}: ", reason.pool) };
        writeln!(out, "  {pool}{NOTE}{}{NOTE:#}: {}", reason.reason, reason.detail)?;
    }
    for denied in simulation.denied.iter().filter(|d| d.pods.contains(&key)) {
        writeln!(out, "  {BAD}refused{BAD:#}: {}", denied.refusal)?;
    }
    if left.is_none() && simulation.denied.is_empty() {
        let owner =
            pod.owner_references().iter().find(|o| o.controller == Some(true)).map(|o| o.kind.as_str());
        let why = if owner == Some("DaemonSet") {
            "a DaemonSet's pods wait for their node, and launch none"
        } else {
            "it is no demand for machines"
        };
        writeln!(out, "  {why}")?;
    }
    Ok(())
}

fn or(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}
