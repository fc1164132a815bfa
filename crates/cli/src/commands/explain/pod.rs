//! One pod: why it is pending, or why it runs on its node.

use std::{borrow::Cow, io::Write as _};

use croft_api::{CroftConfig, condition::UNLIMITED, stored::HasConditions as _};
use croft_inspect::{
    ExistingNode, NewInstance, PendingReason,
    admission::{Admission, Outcome},
    advice::Focus,
    existing_nodes, inventory, new_instance, pending_reasons,
    simulation::{is_created, simulate},
    workload::{Workload, workloads},
};
use croft_manifest::{Input, InputError};
use croft_policy::{NamespaceTenancy, audit::Recreation, definitions::POOL_ANNOTATION};
use croft_scheduler::{Options, PodKey, ReasonKind};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::prices::write_prices;
use crate::{
    costs::estimate_mark,
    failure::Failure,
    output::Output,
    record::dollars,
    shown::one_line,
    table::{BAD, BOLD, GOOD, NAME, NOTE, counted, shortened},
};

/// Pools that are named.
const POOLS: usize = 5;
/// The reason of pools that are closed to a pod.
const NOT_TOLERATED: &str = ReasonKind::TaintNotTolerated.as_str();

/// Explains one pod: tenant, pool, node, or why it stays pending.
pub(super) fn explain(input: &Input, namespace: &str, name: &str, out: &mut Output) -> Result<(), Failure> {
    let Some(pod) = input.pods.get(namespace, name) else {
        if let Some(instead) = elsewhere(input, name).or_else(|| of_workload(input, namespace, name)) {
            let message = format!("there is no pod in {namespace} called {name}; {instead}");
            return Err(InputError::Other(message).into());
        }
        let there = input.pods.iter().filter(|p| p.metadata.namespace.as_deref() == Some(namespace));
        return Err(Failure::missing(
            &format!("pod in {namespace} called"),
            name,
            there.filter_map(|p| p.metadata.name.as_deref()),
        ));
    };
    let pod = &pod.object;
    let admission = Admission::new(input)?;
    let phase =
        pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_else(|| "not created yet".to_owned());
    writeln!(out, "{BOLD}Pod {namespace}/{name}{BOLD:#}: {phase}")?;
    let verdict = admission.pod(pod);
    match admission.tenants().tenancy(namespace) {
        NamespaceTenancy::Tenant { tenant, .. } => {
            writeln!(out, "  namespace {namespace} belongs to tenant {NAME}{}{NAME:#}", tenant.name)?;
        }
        NamespaceTenancy::NonTenant => {
            writeln!(out, "  namespace {namespace} belongs to no tenant")?;
            if let Some(pool) = pod.annotations().get(POOL_ANNOTATION) {
                writeln!(
                    out,
                    "  {NOTE}it asks for pool {}{NOTE:#}, and only pods of tenants get one: write {namespace} into spec.namespaces of a Tenant",
                    one_line(pool)
                )?;
            }
            write_kept_out(input, namespace, out)?;
        }
        NamespaceTenancy::Exempt => {
            writeln!(out, "  namespace {namespace} is exempt: Croft doesn't manage its pods")?
        }
        NamespaceTenancy::Unknown => writeln!(out, "  namespace {namespace} doesn't exist")?,
        NamespaceTenancy::TenantUnreadable => {
            writeln!(out, "  namespace {namespace} belongs to a Tenant that can't be read")?
        }
    }
    match (&verdict.outcome, &verdict.pool) {
        (Outcome::Denied(refusal), _) => {
            writeln!(out, "  {BAD}if it were created now, it would be denied{BAD:#}: {refusal}")?
        }
        (Outcome::Changed(_), Some(pool)) if is_created(pod) => {
            let again = match inventory::recreation(pod) {
                Recreation::Controller => "delete it, and its controller recreates it in the pool",
                Recreation::None => "it has no controller: delete it, and create it again",
            };
            writeln!(
                out,
                "  {NOTE}it isn't pinned to pool {pool}{NOTE:#}: it was created before its tenant; {again}"
            )?;
        }
        (Outcome::Changed(_), None) if is_created(pod) => {
            writeln!(out, "  {NOTE}it isn't kept out of the pools{NOTE:#}: it was created before them")?;
        }
        (_, Some(pool)) => writeln!(out, "  pool {NAME}{pool}{NAME:#}")?,
        _ => {}
    }
    match inventory::node_of(pod) {
        Some(node) => placed(input, &admission, pod, node, out),
        None => pending(input, &admission, pod, out),
    }
}

/// Where a pod of this name is, which may be written as `NAMESPACE/NAME`, and how to ask about it.
fn elsewhere(input: &Input, name: &str) -> Option<String> {
    let (namespace, name) = name.split_once('/').map_or((None, name), |(one, name)| (Some(one), name));
    let of_name = input.pods.iter().filter(|pod| pod.metadata.name.as_deref() == Some(name));
    let mut namespaces = of_name.filter_map(|pod| pod.metadata.namespace.as_deref());
    let found = namespaces.find(|there| namespace.is_none_or(|wanted| wanted == *there))?;
    Some(format!("there is one in {found}: croft explain pod {name} --namespace {found}"))
}

/// The workload that a name is that of, or which would name its pods so, as `croft simulate` does for those that aren't created yet.
fn of_workload(input: &Input, namespace: &str, name: &str) -> Option<String> {
    let of_pod = name.rsplit_once('-').map_or(name, |(workload, _)| workload);
    let ends = [name, of_pod].map(|workload| format!(" {namespace}/{workload}"));
    let title = workloads(input)
        .iter()
        .map(Workload::title)
        .find(|title| ends.iter().any(|end| title.ends_with(end)))?;
    Some(format!(
        "{title} creates pods: write the name of one that there is; croft simulate says why others would stay pending"
    ))
}

/// The pools that a pod of no tenant is kept out of, and those that are open to it.
fn write_kept_out(input: &Input, namespace: &str, out: &mut Output) -> Result<(), Failure> {
    let names = |list: &[String]| list.iter().any(|one| one == namespace);
    if input.configs.iter().any(|config| names(&config.spec.shared_with)) {
        writeln!(
            out,
            "  sharedWith of the CroftConfig names {namespace}: the nodes of every pool are open to its pods"
        )?;
        return Ok(());
    }
    let (open, closed): (Vec<_>, Vec<_>) = input.pools.iter().partition(|pool| names(&pool.spec.shared_with));
    if !open.is_empty() {
        let open: Vec<String> = open.iter().map(|pool| pool.name_any()).collect();
        writeln!(
            out,
            "  sharedWith names {namespace}: the nodes of {} are open to its pods",
            shortened(&open, POOLS)
        )?;
    }
    if !closed.is_empty() {
        let closed: Vec<String> = closed.iter().map(|pool| pool.name_any()).collect();
        writeln!(
            out,
            "  Croft keeps its pods out of the nodes of {}, by the node affinity that it adds",
            shortened(&closed, POOLS)
        )?;
    }
    Ok(())
}

fn placed(
    input: &Input,
    admission: &Admission,
    pod: &Pod,
    node: &str,
    out: &mut Output,
) -> Result<(), Failure> {
    write!(out, "  runs on node {NAME}{node}{NAME:#}")?;
    match input.nodes.get("", node) {
        Some(object) => {
            let info = inventory::node_info(&object.object, input, &croft_cloud::builtin_catalog());
            let pool = info.pool.map_or_else(|| "no pool".to_owned(), |p| format!("pool {p}"));
            writeln!(
                out,
                " of {pool} ({}, {}, {})",
                or_unknown(&info.instance_type),
                or_unknown(&info.zone),
                or_unknown(&info.capacity_type)
            )?;
        }
        None => writeln!(out, ", which isn't in the input")?,
    }
    let wrong = inventory::placement_violations(admission.tenants(), pod);
    if wrong.is_empty() {
        writeln!(out, "  {GOOD}placement ok{GOOD:#}")?;
    }
    for message in wrong {
        writeln!(out, "  {BAD}placement violation{BAD:#}: {message}")?;
    }
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    write_prices(input, Focus::Pod { namespace, name }, out)
}

/// Writes about a scheduler that isn't kube-scheduler. True if Croft launches nothing for its pods.
fn is_ignored(input: &Input, scheduler: &str, out: &mut Output) -> Result<bool, Failure> {
    let ignores = |config: &CroftConfig| config.spec.ignored_schedulers.iter().any(|name| name == scheduler);
    let is_ignored = input.configs.iter().any(|config| ignores(&config.object));
    let so = if is_ignored {
        ", which CroftConfig.spec.ignoredSchedulers names: Croft launches nothing for it".to_owned()
    } else {
        format!(": Croft launches nodes for it, and {scheduler} chooses among them")
    };
    writeln!(out, "  its scheduler is {scheduler}{so}")?;
    Ok(is_ignored)
}

fn pending(input: &Input, admission: &Admission, pod: &Pod, out: &mut Output) -> Result<(), Failure> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
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
    if let Some(other) = spec.scheduler_name.as_deref().filter(|s| *s != "default-scheduler")
        && is_ignored(input, other, out)?
    {
        return Ok(());
    }
    if let Some(node) =
        pod.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).filter(|n| !n.is_empty())
    {
        writeln!(out, "  it is nominated for node {node}")?;
    }
    let simulation = simulate(input, croft_cloud::builtin_catalog(), &Options::default())?;
    let key = PodKey::new(&namespace, &name);
    let instance = simulation.plan.instances.iter().find(|instance| instance.pods.contains(&key));
    if let Some(instance) = instance.and_then(|found| new_instance(&simulation, found, |_| true)) {
        return launchable(input, &instance, out);
    }
    if let Some(node) = existing_nodes(&simulation, |pod| *pod == key).first() {
        return write_room(node, out);
    }
    let left = simulation.plan.unschedulable.iter().find(|u| u.pod == key);
    if let Some(left) = left {
        write_reasons(input, admission, &namespace, &pending_reasons(left).collect::<Vec<_>>(), out)?;
    }
    // A denial is said above.
    let is_denied = simulation.denied.iter().any(|denied| denied.pods.contains(&key));
    if left.is_none() && !is_denied {
        let owner =
            pod.owner_references().iter().find(|o| o.controller == Some(true)).map(|o| o.kind.as_str());
        let why = if owner == Some("DaemonSet") {
            "a DaemonSet's pods don't cause launches; it waits for its node"
        } else {
            "Croft launches nothing for it"
        };
        writeln!(out, "  {why}")?;
    }
    Ok(())
}

/// The instance that a plan launches for the pod.
fn launchable(input: &Input, instance: &NewInstance, out: &mut Output) -> Result<(), Failure> {
    write_instance(instance, estimate_mark(instance.estimated), "", out)?;
    let pool = input.pools.get("", &instance.pool);
    let conditions = pool.into_iter().flat_map(|pool| pool.conditions());
    for condition in conditions.filter(|c| c.status == "False" && c.type_ != UNLIMITED) {
        writeln!(
            out,
            "  {NOTE}but pool {} says {}{NOTE:#}: {}",
            instance.pool, condition.type_, condition.message
        )?;
    }
    Ok(())
}

/// Writes which instance can be launched for a pod, with `mark` before its price and `of` after the number of its pods.
pub(super) fn write_instance(
    instance: &NewInstance,
    mark: &str,
    of: &str,
    out: &mut Output,
) -> Result<(), Failure> {
    let NewInstance { pool, instance_type, zone, capacity_type, price, estimated: _, pods } = instance;
    writeln!(
        out,
        "  {GOOD}an instance can be launched for it{GOOD:#}: {instance_type} in {zone}, {capacity_type}, in pool {pool}, {}, for {}{of}",
        price.map_or_else(|| "price unknown".to_owned(), |price| format!("{mark}{}", dollars(price))),
        counted(pods.len(), "pod")
    )?;
    Ok(())
}

/// Writes which node has room for a pod.
pub(super) fn write_room(node: &ExistingNode, out: &mut Output) -> Result<(), Failure> {
    let kind = if node.coming { "coming node" } else { "node" };
    writeln!(out, "  {GOOD}the {kind} {} has room for it{GOOD:#}; kube-scheduler binds it", node.node)?;
    Ok(())
}

/// Writes why a pod stays pending, and what would help.
pub(super) fn write_reason(of: &PendingReason, out: &mut Output) -> Result<(), Failure> {
    let PendingReason { pool, reason, detail, remedy } = of;
    let pool = if pool.is_empty() { String::new() } else { format!("pool {pool}: ") };
    writeln!(out, "  {pool}{NOTE}{reason}{NOTE:#}: {detail}")?;
    if let Some(remedy) = remedy {
        writeln!(out, "    {remedy}")?;
    }
    Ok(())
}

/// Why the pod stays pending: in the pools of its tenant, if it has one, and what would help.
fn write_reasons(
    input: &Input,
    admission: &Admission,
    namespace: &str,
    reasons: &[PendingReason],
    out: &mut Output,
) -> Result<(), Failure> {
    let tenancy = admission.tenants().tenancy(namespace);
    let is_kept_off = reasons.iter().all(|reason| reason.reason == NOT_TOLERATED);
    if matches!(tenancy, NamespaceTenancy::NonTenant) && is_kept_off {
        writeln!(
            out,
            "  {NOTE}namespace {namespace} belongs to no tenant{NOTE:#}, so its pods run in no pool: write it into spec.namespaces of a \
             Tenant, or into spec.sharedWith of a TenantPool"
        )?;
        return Ok(());
    }
    let pools = tenancy
        .tenant()
        .and_then(|tenant| input.tenants.get("", &tenant.name))
        .map(|tenant| input.pools_of_tenant(tenant).map(Cow::into_owned).collect::<Vec<String>>());
    let pools = pools.as_deref();
    let is_own = |reason: &&PendingReason| {
        reason.pool.is_empty() || pools.is_none_or(|pools| pools.contains(&reason.pool))
    };
    let own: Vec<&PendingReason> = reasons.iter().filter(is_own).collect();
    // The reasons are those of pools that exist.
    if let Some(pools) = pools.filter(|pools| !pools.is_empty() && own.is_empty())
        && pools.iter().all(|pool| input.pools.get("", pool).is_none())
    {
        writeln!(out, "  {BAD}none of its tenant's pools exists{BAD:#}: {}", shortened(pools, POOLS))?;
        return Ok(());
    }
    // A pod that is pinned to one pool of its tenant tolerates no other, which would hide what matters.
    let is_meant = |reason: &&&PendingReason| reason.reason != NOT_TOLERATED;
    let is_any_meant = own.iter().any(|reason| is_meant(&reason));
    for reason in own.iter().filter(|reason| !is_any_meant || is_meant(reason)) {
        write_reason(reason, out)?;
    }
    Ok(())
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}
