//! One tenant: its namespaces, pools and pods.

use std::io::Write as _;

use croft_api::stored::HasConditions as _;
use croft_inspect::{
    admission::Admission,
    inventory::{self, NodeInfo},
};
use croft_manifest::Input;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::objects::{named, write_conditions, write_violations};
use crate::{
    costs::cost_text,
    failure::Failure,
    output::Output,
    table::{BAD, BOLD, NAME, NOTE, counted, shortened},
};

/// Explains one tenant: namespaces, pools, pods and violations.
pub(super) fn explain(input: &Input, name: &str, out: &mut Output) -> Result<(), Failure> {
    let tenant = named(&input.tenants, "Tenant", name)?;
    let admission = Admission::new(input)?;
    let owners = inventory::tenants_by_namespace(input, admission.tenants());
    let owned: Vec<&String> =
        owners.iter().filter(|(_, owner)| *owner == name).map(|(namespace, _)| namespace).collect();
    writeln!(out, "{BOLD}Tenant {name}{BOLD:#}: {}", counted(owned.len(), "namespace"))?;
    if !owned.is_empty() {
        writeln!(out, "  {}", shortened(&owned, 10))?;
    }
    for claimed in &tenant.spec.namespaces {
        match owners.get(claimed) {
            Some(owner) if owner != name => {
                writeln!(
                    out,
                    "  {NOTE}it also claims {claimed}{NOTE:#}, which belongs to the older tenant {owner}"
                )?;
            }
            None if input.namespaces.get("", claimed).is_none() => {
                writeln!(out, "  it claims {claimed}, which doesn't exist yet")?
            }
            None => writeln!(out, "  {NOTE}it claims {claimed}{NOTE:#}, which is exempt")?,
            Some(_) => {}
        }
    }
    let nodes = inventory::node_infos(input, &croft_cloud::builtin_catalog());
    for (i, pool) in input.pools_of_tenant(tenant).enumerate() {
        let pool = &*pool;
        let default = if i == 0 { ", the default" } else { "" };
        if input.pools.get("", pool).is_none() {
            writeln!(
                out,
                "  {BAD}pool {pool} doesn't exist{BAD:#}: pods that need it are denied; create the TenantPool"
            )?;
            continue;
        }
        let its: Vec<&NodeInfo> = nodes.iter().filter(|m| m.pool.as_deref() == Some(pool)).collect();
        writeln!(
            out,
            "  pool {NAME}{pool}{NAME:#}{default}: {}, {}",
            counted(its.len(), "node"),
            cost_text(inventory::total_cost(its.iter().copied()))
        )?;
    }
    let pods: Vec<&Pod> = inventory::active_pods(input)
        .filter(|p| p.namespace().is_some_and(|n| owners.get(&n).is_some_and(|o| o == name)))
        .collect();
    let pending = pods.iter().filter(|p| inventory::node_of(p).is_none()).count();
    writeln!(out, "  {}, {pending} of them without a node", counted(pods.len(), "pod"))?;
    write_violations(admission.tenants(), &pods, out)?;
    write_conditions(tenant.conditions(), out)
}
