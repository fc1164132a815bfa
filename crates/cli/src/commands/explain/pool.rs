//! One pool: who uses it, what it costs, and how much of its limits is used.

use std::{collections::BTreeMap, io::Write as _};

use croft_api::{TenantPool, amount::Amount, convert::template_return, stored::HasConditions as _};
use croft_inspect::{
    TemplateNodes,
    inventory::{self, NodeInfo},
    simulation::time_of,
    templates,
};
use croft_manifest::{Input, Sourced, sum_quantities};
use croft_scheduler::{
    Balance, CapacityType, NodeSum, ShareBound,
    resources::{self, Round, readable},
};
use kube::ResourceExt as _;

use super::objects::{named, write_conditions};
use crate::{
    costs::cost_text,
    failure::Failure,
    output::Output,
    table::{BOLD, NAME, NOTE, counted, shortened},
};

/// Explains one pool: label, taints, users, nodes, cost and limits.
pub(super) fn explain(input: &Input, name: &str, out: &mut Output) -> Result<(), Failure> {
    let pool = named(&input.pools, "TenantPool", name)?;
    if pool.spec.per_tenant {
        return explain_for_many(input, pool, out);
    }
    let value = croft_api::convert::scheduler::value(pool);
    let taints: Vec<String> = croft_api::convert::scheduler::taints(pool)
        .iter()
        .map(|t| format!("{}={}:{}", t.key, t.value.clone().unwrap_or_default(), t.effect))
        .collect();
    writeln!(
        out,
        "{BOLD}TenantPool {name}{BOLD:#}: label {}={value}, taints {}",
        pool.spec.key,
        taints.join(", ")
    )?;
    let users = users(input, name);
    writeln!(
        out,
        "  used by {}",
        if users.is_empty() { "no tenant".to_owned() } else { shortened(&users, 10) }
    )?;
    if !pool.spec.shared_with.is_empty() {
        writeln!(out, "  shared with the namespaces {}", shortened(&pool.spec.shared_with, 10))?;
    }
    writeln!(out, "  provisioner {:?}", pool.spec.provisioner)?;
    let catalog = croft_cloud::builtin_catalog();
    let nodes = inventory::node_infos(input, &catalog);
    let its: Vec<&NodeInfo> = nodes.iter().filter(|m| m.pool.as_deref() == Some(name)).collect();
    writeln!(
        out,
        "  {}, {}",
        counted(its.len(), "node"),
        cost_text(inventory::total_cost(its.iter().copied()))
    )?;
    write_limits(input, &pool.spec.limits, &its, out)?;
    write_shares(input, pool, &its, out)?;
    for TemplateNodes { template, nodes, cost, passed_over } in
        templates(input, pool, &its, Some(&catalog), time_of(input))
    {
        let fixed = template.replicas.map_or_else(String::new, |replicas| format!("replicas {replicas}, "));
        writeln!(
            out,
            "  template {NAME}{}{NAME:#}: weight {}, {fixed}{}, {}",
            template.name,
            template.weight,
            counted(nodes.len(), "node"),
            cost_text(cost)
        )?;
        write_limits(input, &template.limits, &nodes, out)?;
        if let Some(why) = passed_over {
            writeln!(out, "  {NOTE}passed over: {why}{NOTE:#}")?;
        }
    }
    if let Some(after) = template_return::after(pool) {
        let time = match after.as_secs() {
            seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
            seconds => format!("{seconds} s"),
        };
        writeln!(out, "  nodes of lighter templates return once a heavier one has launched for {time}")?;
    } else if let Some(wanted) = &pool.spec.template_return {
        writeln!(out, "  return to a heavier template: {:?}", wanted.policy)?;
    }
    write_conditions(pool.conditions(), out)
}

/// A line for each limit of `nodes`.
fn write_limits(
    input: &Input,
    limits: &BTreeMap<String, Amount>,
    nodes: &[&NodeInfo],
    out: &mut Output,
) -> Result<(), Failure> {
    for (resource, limit) in limits {
        let used = match resource.as_str() {
            croft_scheduler::LIMIT_NODES => nodes.len().to_string(),
            croft_scheduler::LIMIT_COST => cost_text(inventory::total_cost(nodes.iter().copied())),
            _ => capacity(input, nodes, resource),
        };
        writeln!(out, "  limit {resource}: {used} of {}", limit.0)?;
    }
    Ok(())
}

/// Explains a pool from which one is made for each Tenant that names it.
fn explain_for_many(input: &Input, pool: &TenantPool, out: &mut Output) -> Result<(), Failure> {
    let name = pool.name_any();
    let is_made_from =
        |one: &&Sourced<TenantPool>| one.spec.for_tenant.as_ref().is_some_and(|of| of.pool == name);
    let made: Vec<String> = input.pools.iter().filter(is_made_from).map(|one| one.name_any()).collect();
    writeln!(out, "{BOLD}TenantPool {name}{BOLD:#}: for many tenants, without nodes of its own")?;
    writeln!(
        out,
        "  pools of the Tenants that name it: {}",
        if made.is_empty() { "none".to_owned() } else { shortened(&made, 10) }
    )?;
    write_conditions(pool.conditions(), out)
}

/// A line for each share of the pool, and what its nodes have of it.
fn write_shares(
    input: &Input,
    pool: &TenantPool,
    nodes: &[&NodeInfo],
    out: &mut Output,
) -> Result<(), Failure> {
    for share in croft_api::convert::scheduler::shares(pool).unwrap_or_default() {
        let (mut balance, mut unknown) = (Balance::default(), 0_usize);
        for info in nodes {
            let cpu = inventory::capacity(input, &info.name, resources::CPU);
            let is_own = share.is_about(info.template.as_deref(), CapacityType::parse(&info.capacity_type));
            balance.count(is_own, cpu.unwrap_or_default(), 1);
            unknown = unknown.saturating_add(usize::from(cpu.is_none()));
        }
        let (own, all) = (balance.own, balance.all());
        let outside = if share.holds(balance) { "" } else { ", which is outside the share" };
        let has = match share.bound {
            ShareBound::MaxPercent(_) => {
                let cpu = |sum: NodeSum| readable(resources::CPU, sum.cpu, Round::Down);
                let amounts = format!("{} of {}", cpu(own), cpu(all));
                match unknown {
                    0 => amounts + outside,
                    // Of unknown amounts nothing says whether the share holds.
                    nodes => format!("{amounts}, and {} of unknown capacity", counted(nodes, "node")),
                }
            }
            ShareBound::MinNodes(_) => format!("{} of {}{outside}", own.nodes, all.nodes),
        };
        writeln!(out, "  share: {}: {has}", share.of_pool(&pool.name_any()))?;
    }
    Ok(())
}

/// Total capacity of the nodes for a resource, which is what limits count.
fn capacity(input: &Input, nodes: &[&NodeInfo], resource: &str) -> String {
    let amounts: Vec<_> = nodes
        .iter()
        .filter_map(|node| input.nodes.get("", &node.name)?.status.as_ref()?.capacity.as_ref()?.get(resource))
        .collect();
    sum_quantities(resource, &amounts).map_or_else(|| "?".to_owned(), |q| q.0)
}

/// Names of the tenants that list `pool`.
pub(super) fn users(input: &Input, pool: &str) -> Vec<String> {
    input.tenants_by_pool().remove(pool).into_iter().flatten().collect()
}
