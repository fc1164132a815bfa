//! Rows as tables and as comma-separated values.

use std::{collections::BTreeMap, io::Write as _};

use croft_scheduler::{
    Quantity,
    resources::{CPU, MEMORY, Round, native, readable},
};

use super::{
    fill::Fill,
    rows::{NodeRow, PoolRow, Rows, TemplateRow, TenantRow},
};
use crate::{
    costs::{cost_cell, cost_text},
    failure::Failure,
    output::Output,
    table::{BOLD, NAME, NOTE, Table, counted, shortened},
};

/// Names of a list that are shown, unless all are.
const NAMES_SHOWN: usize = 3;

/// Writes the tables; with every name if `wide`.
pub(super) fn write(rows: &Rows, nodes: bool, wide: bool, out: &mut Output) -> Result<(), Failure> {
    let Rows { tenants, pools, nodes: all, .. } = rows;
    let with_templates = rows.has_templates();
    let mut tables = vec![tenant_table(tenants, wide), pool_table(pools, with_templates, wide)];
    if nodes || wide {
        tables.push(node_table(all, with_templates, wide));
    }
    for table in tables.iter().filter(|table| !table.is_empty()) {
        table.write(out)?;
        writeln!(out)?;
    }
    for (pool, pause) in pools.iter().filter_map(|row| Some((&row.name, row.paused.as_ref()?))) {
        writeln!(out, "{NOTE}pool {pool}: {pause}{NOTE:#}")?;
    }
    writeln!(out, "{BOLD}{}{BOLD:#}", sum(rows))?;
    Ok(())
}

/// Nodes and their cost, in a sentence.
pub(super) fn sum(Rows { nodes, cost, .. }: &Rows) -> String {
    let in_pools = nodes.iter().filter(|node| node.pool.is_some()).count();
    format!("{in_pools} of {} in pools, {}", counted(nodes.len(), "node"), cost_text(*cost))
}

/// Writes the tenants, or the nodes. Lists are separated by blanks.
pub(super) fn write_csv(rows: &Rows, nodes: bool, out: &mut Output) -> Result<(), Failure> {
    if nodes {
        let head = "node,pool,template,tenants,claim,instance_type,zone,capacity_type,pods,cpu_allocatable,cpu_requested,cpu_used,memory_allocatable,\
                    memory_requested,memory_used,cost_per_hour,age_seconds,state";
        writeln!(out, "{head}")?;
        for row in &rows.nodes {
            let known = |amount: &Option<String>| amount.clone().unwrap_or_default();
            out.csv_row(&[
                row.name.clone(),
                row.pool.clone().unwrap_or_default(),
                row.template.clone().unwrap_or_default(),
                row.tenants.join(" "),
                row.claim.clone().unwrap_or_default(),
                row.instance_type.clone(),
                row.zone.clone(),
                row.capacity_type.clone(),
                row.pods.to_string(),
                known(&row.cpu.allocatable),
                known(&row.cpu.requested),
                known(&row.cpu.used),
                known(&row.memory.allocatable),
                known(&row.memory.requested),
                known(&row.memory.used),
                if row.cost.unknown == 0 { row.cost.sum.to_string() } else { String::new() },
                row.age_seconds.map(|seconds| seconds.to_string()).unwrap_or_default(),
                row.state.as_str().to_owned(),
            ])?;
        }
        return Ok(());
    }
    let head = "tenant,pools,namespaces,pods,pending,nodes,cost_per_hour,nodes_of_unknown_price,ready";
    writeln!(out, "{head}")?;
    for row in &rows.tenants {
        out.csv_row(&[
            row.name.clone(),
            row.pools.join(" "),
            row.namespaces.join(" "),
            row.pods.to_string(),
            row.pending.to_string(),
            row.nodes.to_string(),
            row.cost.sum.to_string(),
            row.cost.unknown.to_string(),
            row.ready.clone(),
        ])?;
    }
    Ok(())
}

fn names(names: &[String], wide: bool) -> String {
    if wide { names.join(", ") } else { shortened(names, NAMES_SHOWN) }
}

pub(super) fn limits(limits: &BTreeMap<String, String>) -> String {
    limits.iter().map(|(key, limit)| format!("{key} {limit}")).collect::<Vec<_>>().join(", ")
}

/// The nodes of each template of a pool.
pub(super) fn templates(templates: &[TemplateRow]) -> String {
    templates.iter().map(|one| format!("{} {}", one.name, one.nodes)).collect::<Vec<_>>().join(", ")
}

/// An amount that isn't known, and so is no zero.
const UNKNOWN: &str = "unknown";

/// An amount as people say it, without a noun.
fn amount(resource: &str, text: Option<&str>, round: Round) -> String {
    let parsed = text.and_then(|text| text.parse::<Quantity>().ok());
    parsed.map_or_else(
        || UNKNOWN.to_owned(),
        |parsed| {
            let said = readable(resource, native(resource, parsed), round);
            said.split(' ').next().unwrap_or_default().to_owned()
        },
    )
}

/// Of what pods may request, how much they do.
fn requested(resource: &str, fill: &Fill) -> String {
    let requested = amount(resource, fill.requested.as_deref(), Round::Up);
    let allocatable = amount(resource, fill.allocatable.as_deref(), Round::Down);
    format!("{requested} of {allocatable}")
}

/// The use of a resource.
fn used(resource: &str, fill: &Fill) -> String {
    amount(resource, fill.used.as_deref(), Round::Up)
}

/// An age in its largest unit, and the next smaller one while it is small.
fn age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (10.., ..) => format!("{days}d"),
        (1.., ..) => format!("{days}d{}h", hours % 24),
        (_, 1.., _) => format!("{hours}h{}m", minutes % 60),
        (_, _, 2..) => format!("{minutes}m"),
        _ => format!("{seconds}s"),
    }
}

/// A node, from its name to its state.
pub(super) fn node_cells(row: &NodeRow, with_templates: bool) -> Vec<String> {
    let mut cells = vec![row.name.clone(), row.pool.clone().unwrap_or_default()];
    cells.extend(with_templates.then(|| row.template.clone().unwrap_or_default()));
    cells.extend([
        row.instance_type.clone(),
        row.zone.clone(),
        row.capacity_type.clone(),
        row.pods.to_string(),
        requested(CPU, &row.cpu),
        used(CPU, &row.cpu),
        requested(MEMORY, &row.memory),
        used(MEMORY, &row.memory),
        if row.cost.unknown == 0 { cost_cell(row.cost) } else { UNKNOWN.to_owned() },
        row.age_seconds.map_or_else(|| UNKNOWN.to_owned(), age),
        row.state.as_str().to_owned(),
    ]);
    cells
}

fn tenant_table(rows: &[TenantRow], wide: bool) -> Table {
    let namespaces = if wide { "NAMESPACES" } else { "NAMESPACES>" };
    let mut table = Table::new(&format!("TENANT|POOLS|{namespaces}|PODS>|PENDING>|NODES>|$/H>|READY"));
    let plain = |text: String| (text, anstyle::Style::new());
    for row in rows {
        let namespaces = if wide { row.namespaces.join(", ") } else { row.namespaces.len().to_string() };
        table.styled(vec![
            (row.name.clone(), NAME),
            plain(names(&row.pools, wide)),
            plain(namespaces),
            plain(row.pods.to_string()),
            if row.pending > 0 { (row.pending.to_string(), NOTE) } else { plain("0".to_owned()) },
            plain(row.nodes.to_string()),
            plain(cost_cell(row.cost)),
            plain(row.ready.clone()),
        ]);
    }
    table
}

fn pool_table(rows: &[PoolRow], with_templates: bool, wide: bool) -> Table {
    let of_templates = if with_templates { "TEMPLATES|" } else { "" };
    let mut table = Table::new(&format!("POOL|TENANTS|NODES>|{of_templates}COMING>|LIMITS|$/H>|READY"));
    let plain = |text: String| (text, anstyle::Style::new());
    for row in rows {
        let mut cells =
            vec![(row.name.clone(), NAME), plain(names(&row.tenants, wide)), plain(row.nodes.to_string())];
        cells.extend(with_templates.then(|| plain(templates(&row.templates))));
        cells.extend([
            plain(row.coming.to_string()),
            plain(limits(&row.limits)),
            plain(cost_cell(row.cost)),
            plain(row.ready.clone()),
        ]);
        table.styled(cells);
    }
    table
}

fn node_table(rows: &[NodeRow], with_templates: bool, wide: bool) -> Table {
    let template = if with_templates { "TEMPLATE|" } else { "" };
    let owners = if wide { "|NODECLAIM|TENANTS" } else { "" };
    let mut table = Table::new(&format!(
        "NODE|POOL|{template}TYPE|ZONE|CAPACITY|PODS>|CPU REQUESTED>|CPU USED>|MEMORY REQUESTED>|MEMORY USED>|$/H>|AGE>|STATE{owners}"
    ));
    for row in rows {
        let mut cells = node_cells(row, with_templates);
        if wide {
            cells.extend([row.claim.clone().unwrap_or_default(), row.tenants.join(", ")]);
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_at_a_glance() {
        for (seconds, expected) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (3_700, "1h1m"), (90_000, "1d1h"), (864_000, "10d")]
        {
            assert_eq!(age(seconds), expected);
        }
    }

    #[test]
    fn amounts_that_are_not_known_say_so() {
        let fill = Fill { allocatable: Some("3920m".into()), requested: Some("500m".into()), used: None };
        assert_eq!((requested(CPU, &fill).as_str(), used(CPU, &fill).as_str()), ("500m of 3.92", "unknown"));
        let fill = Fill { requested: None, used: Some("3Gi".into()), ..fill };
        assert_eq!(used(MEMORY, &fill), "3Gi");
        assert!(requested(MEMORY, &fill).starts_with("unknown of "));
    }
}
