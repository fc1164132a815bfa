//! `croft top`: tenants, pools and nodes with their present cost.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use croft_manifest::{Input, InputError};
use kube::ResourceExt as _;

use crate::{
    admission::Admission,
    cluster_reader::read,
    failure::Failure,
    inventory::{self, NodeInfo},
    output::Output,
    source::SourceArgs,
    table::{Align, BOLD, NAME, NOTE, Table, counted, shortened},
};

/// Arguments of `croft top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Show nodes too
    #[arg(long)]
    nodes: bool,
    /// Show it again every so many seconds, until interrupted
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

/// Moves to the top left and clears the screen (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs the command.
pub(crate) fn run(args: &TopArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let TopArgs { source, nodes, watch } = args;
    let Some(seconds) = watch else {
        let input = source.load("default", out)?;
        show(&input, *nodes, out)?;
        return Ok(ExitCode::SUCCESS);
    };
    if !source.is_live() {
        return Err(InputError::Other(
            "--watch needs a cluster: files don't change by themselves".to_owned(),
        )
        .into());
    }
    source.cluster().run(async |client| {
        loop {
            let input = read(&client).await?;
            write!(out, "{CLEAR}")?;
            show(&input, *nodes, out).map_err(|e| anyhow::anyhow!("{e}"))?;
            out.flush().context("failed to write")?;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(*seconds)) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn show(input: &Input, show_nodes: bool, out: &mut Output) -> Result<(), Failure> {
    let admission = Admission::new(input)?;
    let nodes = inventory::node_infos(input, &croft_cloud::builtin_catalog());
    let tenants_by_namespace = inventory::tenants_by_namespace(input, admission.tenants());
    let tenants = tenant_table(input, &nodes, &tenants_by_namespace);
    let pools = pool_table(input, &nodes);
    if !tenants.is_empty() {
        tenants.write(out)?;
        writeln!(out)?;
    }
    if !pools.is_empty() {
        pools.write(out)?;
        writeln!(out)?;
    }
    if show_nodes {
        node_table(&nodes, input).write(out)?;
        writeln!(out)?;
    }
    let in_pools: Vec<&NodeInfo> = nodes.iter().filter(|m| m.pool.is_some()).collect();
    writeln!(
        out,
        "{BOLD}{} of {} in pools, {}{BOLD:#}",
        in_pools.len(),
        counted(nodes.len(), "node"),
        inventory::cost_text(inventory::total_cost(in_pools.iter().copied()))
    )?;
    Ok(())
}

fn tenant_table(input: &Input, nodes: &[NodeInfo], tenants_by_namespace: &BTreeMap<String, String>) -> Table {
    let mut table = Table::new(&[
        ("TENANT", Align::Left),
        ("POOLS", Align::Left),
        ("NAMESPACES", Align::Right),
        ("PODS", Align::Right),
        ("PENDING", Align::Right),
        ("NODES", Align::Right),
        ("$/H", Align::Right),
        ("READY", Align::Left),
    ]);
    let mut names: Vec<&str> = input.tenants.iter().filter_map(|t| t.metadata.name.as_deref()).collect();
    names.sort_unstable();
    for name in names {
        let Some(tenant) = input.tenants.get("", name) else { continue };
        let its_namespaces: BTreeSet<&str> = tenants_by_namespace
            .iter()
            .filter(|(_, owner)| *owner == name)
            .map(|(namespace, _)| namespace.as_str())
            .collect();
        let pods: Vec<_> = inventory::active_pods(input)
            .filter(|p| p.metadata.namespace.as_deref().is_some_and(|n| its_namespaces.contains(n)))
            .collect();
        let pending = pods.iter().filter(|p| inventory::node_of(p).is_none()).count();
        let its: Vec<&NodeInfo> = nodes
            .iter()
            .filter(|m| m.pool.as_ref().is_some_and(|pool| tenant.spec.pools.contains(pool)))
            .collect();
        let plain = |text: String| (text, anstyle::Style::new());
        table.styled(vec![
            (name.to_owned(), NAME),
            plain(shortened(&tenant.spec.pools, 3)),
            plain(its_namespaces.len().to_string()),
            plain(pods.len().to_string()),
            if pending > 0 { (pending.to_string(), NOTE) } else { plain("0".to_owned()) },
            plain(its.len().to_string()),
            plain(inventory::cost_cell(inventory::total_cost(its.iter().copied()))),
            plain(ready(tenant.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default())),
        ]);
    }
    table
}

fn pool_table(input: &Input, nodes: &[NodeInfo]) -> Table {
    let mut table = Table::new(&[
        ("POOL", Align::Left),
        ("TENANTS", Align::Left),
        ("NODES", Align::Right),
        ("COMING", Align::Right),
        ("LIMITS", Align::Left),
        ("$/H", Align::Right),
        ("READY", Align::Left),
    ]);
    let mut names: Vec<&str> = input.pools.iter().filter_map(|p| p.metadata.name.as_deref()).collect();
    names.sort_unstable();
    for name in names {
        let Some(pool) = input.pools.get("", name) else { continue };
        let users: Vec<String> = input
            .tenants
            .iter()
            .filter(|t| t.spec.pools.iter().any(|p| p == name))
            .map(|t| t.name_any())
            .collect();
        let its: Vec<&NodeInfo> = nodes.iter().filter(|m| m.pool.as_deref() == Some(name)).collect();
        let registered = |claim: &str| its.iter().any(|m| m.claim.as_deref() == Some(claim));
        let coming =
            input.claims.iter().filter(|c| c.spec.pool == name && !registered(&c.name_any())).count();
        let limits: Vec<String> = pool.spec.limits.iter().map(|(k, v)| format!("{k} {}", v.0)).collect();
        table.styled(vec![
            (name.to_owned(), NAME),
            (shortened(&users, 3), anstyle::Style::new()),
            (its.len().to_string(), anstyle::Style::new()),
            (coming.to_string(), anstyle::Style::new()),
            (limits.join(", "), anstyle::Style::new()),
            (inventory::cost_cell(inventory::total_cost(its.iter().copied())), anstyle::Style::new()),
            (
                ready(pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default()),
                anstyle::Style::new(),
            ),
        ]);
    }
    table
}

fn node_table(nodes: &[NodeInfo], input: &Input) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("POOL", Align::Left),
        ("TYPE", Align::Left),
        ("ZONE", Align::Left),
        ("CAPACITY", Align::Left),
        ("PODS", Align::Right),
        ("$/H", Align::Right),
        ("READY", Align::Left),
    ]);
    for node in nodes {
        let pods = inventory::active_pods(input)
            .filter(|p| inventory::node_of(p) == Some(node.name.as_str()))
            .count();
        table.row(vec![
            node.name.clone(),
            node.pool.clone().unwrap_or_default(),
            node.instance_type.clone(),
            node.zone.clone(),
            node.capacity_type.clone(),
            pods.to_string(),
            node.price.map_or_else(
                || "unknown".to_owned(),
                |p| format!("{}{p}", inventory::estimate_mark(node.estimated)),
            ),
            if node.ready { "True" } else { "False" }.to_owned(),
        ]);
    }
    table
}

fn ready(conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]) -> String {
    conditions.iter().find(|c| c.type_ == croft_api::condition::READY).map_or_else(String::new, |c| {
        if c.status == "True" { c.status.clone() } else { format!("{} ({})", c.status, c.reason) }
    })
}
