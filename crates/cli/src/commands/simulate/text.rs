//! The plan as tables and sentences.

use std::io::Write as _;

use anstyle::Style;
use croft_inspect::{
    WorkloadShortfall,
    amounts::per_month,
    shortfalls,
    simulation::{DENIED, Simulation},
};
use croft_manifest::Input;
use croft_scheduler::{PlannedInstance, PodKey, Price, ReasonKind, Relaxed, Resources, resources};

use super::{
    consolidation,
    pending::{PendingGroup, PendingReason, namespaces_without_tenant, pending_groups},
};
use crate::{
    failure::Failure,
    output::Output,
    table::{BAD, BOLD, DIM, GOOD, NAME, NOTE, Table, counted, shortened},
};

/// Writes new instances, existing nodes that get pods, cost, pending pods with reasons, and consolidation.
pub(super) fn write(simulation: &Simulation, input: &Input, out: &mut Output) -> Result<(), Failure> {
    write_instances(simulation, out)?;
    write_existing(simulation, out)?;
    summary(simulation, out)?;
    write_pending(simulation, input, out)?;
    if let Some(savings) = &simulation.savings {
        consolidation::text(savings, out)?;
    }
    Ok(())
}

/// The table of instances to launch.
fn write_instances(simulation: &Simulation, out: &mut Output) -> Result<(), Failure> {
    if simulation.plan.instances.is_empty() {
        return Ok(());
    }
    let mut table = Table::new("INSTANCE|POOL|TYPE|ZONE|CAPACITY|$/H>|PODS>|CPU>|MEMORY>|OR ONE OF");
    for instance in &simulation.plan.instances {
        let others: Vec<&String> =
            instance.options.iter().filter(|o| **o != instance.instance_type).collect();
        let plain = |text: &str| (text.to_owned(), Style::new());
        table.styled(vec![
            (instance.name.clone(), NAME),
            plain(&instance.pool),
            plain(&instance.instance_type),
            plain(&instance.zone),
            plain(instance.capacity_type.as_str()),
            price(simulation, instance),
            plain(&pods(instance.pods.len(), simulation.headroom_on(&instance.name))),
            plain(&share(&instance.requests, &instance.allocatable, resources::CPU)),
            plain(&share(&instance.requests, &instance.allocatable, resources::MEMORY)),
            (shortened(&others, 2), DIM),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    Ok(())
}

/// The table of nodes that get pods.
fn write_existing(simulation: &Simulation, out: &mut Output) -> Result<(), Failure> {
    let used: Vec<_> = simulation
        .plan
        .existing
        .iter()
        .filter(|node| !node.pods.is_empty() || simulation.headroom_on(&node.node) > 0)
        .collect();
    if used.is_empty() {
        return Ok(());
    }
    let mut table = Table::new("EXISTING NODE|POOL|TYPE|ZONE|NEW PODS>");
    for node in used {
        table.row(vec![
            if node.coming { format!("{} (coming)", node.node) } else { node.node.clone() },
            node.pool.clone().unwrap_or_default(),
            node.instance_type.clone(),
            node.zone.clone(),
            pods(node.pods.len(), simulation.headroom_on(&node.node)),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    Ok(())
}

/// The pods that stay pending, by their reasons.
fn write_pending(simulation: &Simulation, input: &Input, out: &mut Output) -> Result<(), Failure> {
    let groups = pending_groups(simulation, input);
    if !groups.is_empty() {
        let count: usize = groups.iter().map(|group| group.pods.len()).sum();
        let verb = if count == 1 { "stays" } else { "stay" };
        writeln!(out, "\n{BAD}{} {verb} pending{BAD:#}", counted(count, "pod"))?;
        for PendingGroup { pods, reasons } in &groups {
            let names: Vec<String> = pods.iter().map(PodKey::to_string).collect();
            writeln!(out, "  {BOLD}{}{BOLD:#}", shortened(&names, 3))?;
            for (pools, reason, detail) in by_detail(reasons) {
                // A refused pod isn't created at all, so no pool is named.
                let place =
                    if pools.is_empty() || reason == DENIED { String::new() } else { format!("{pools}: ") };
                writeln!(out, "    {place}{NOTE}{reason}{NOTE:#}: {detail}")?;
            }
        }
        for namespace in namespaces_without_tenant(&groups, input)? {
            writeln!(
                out,
                "  {BOLD}{namespace}{BOLD:#} belongs to no tenant, so its pods run in no pool: write it into spec.namespaces of a Tenant"
            )?;
        }
    }
    write_shortfalls(simulation, input, out)
}

/// The workloads of which a limit holds some pods; the reasons above say it of a single pod.
fn write_shortfalls(simulation: &Simulation, input: &Input, out: &mut Output) -> Result<(), Failure> {
    let several = shortfalls(input, simulation).into_iter().filter(|one| one.shortfall.pods > 1);
    for (i, one) in several.enumerate() {
        if i == 0 {
            writeln!(out)?;
        }
        let WorkloadShortfall { kind, namespace, name, shortfall } = one;
        writeln!(out, "{BOLD}{kind} {namespace}/{name}{BOLD:#}: {}", shortfall.message)?;
    }
    Ok(())
}

/// A number of pods, and of headroom pods beside them.
fn pods(count: usize, headroom: usize) -> String {
    if headroom == 0 { count.to_string() } else { format!("{count} + {headroom} headroom") }
}

fn price(simulation: &Simulation, instance: &PlannedInstance) -> (String, Style) {
    match instance.price {
        None => ("unknown".to_owned(), NOTE),
        Some(price) if simulation.is_estimate(instance) => (format!("~{price}"), Style::new()),
        Some(price) => (price.to_string(), Style::new()),
    }
}

/// Groups pools with the same reason and detail.
fn by_detail(reasons: &[PendingReason]) -> Vec<(String, &str, &str)> {
    // Where a pod is kept off by its own pool, the taints of other tenants' pools say nothing.
    let is_meant = |one: &PendingReason| one.reason != ReasonKind::TaintNotTolerated.as_str();
    let is_any_meant = reasons.iter().any(is_meant);
    let mut lines: Vec<(Vec<&str>, &str, &str)> = Vec::new();
    for one in reasons.iter().filter(|one| !is_any_meant || is_meant(one)) {
        match lines.iter_mut().find(|(_, reason, detail)| *reason == one.reason && *detail == one.detail) {
            Some((pools, _, _)) => pools.push(&one.pool),
            None => lines.push((vec![&one.pool], &one.reason, &one.detail)),
        }
    }
    lines.into_iter().map(|(pools, reason, detail)| (shortened(&pools, 4), reason, detail)).collect()
}

fn summary(simulation: &Simulation, out: &mut Output) -> Result<(), Failure> {
    let plan = &simulation.plan;
    let on_new: usize = plan.instances.iter().map(|m| m.pods.len()).sum();
    let on_old: usize = plan.existing.iter().map(|n| n.pods.len()).sum();
    let nothing = plan.instances.is_empty() && on_old == 0 && simulation.headroom.is_empty();
    if nothing && simulation.is_complete() {
        writeln!(out, "No pod is pending: nothing would be launched.")?;
        return Ok(());
    }
    let mut line =
        format!("{} for {}", counted(plan.instances.len(), "new instance"), counted(on_new, "pod"));
    if on_old > 0 {
        line.push_str(&format!(", {} on existing nodes", counted(on_old, "pod")));
    }
    if !plan.instances.is_empty() || on_old > 0 {
        writeln!(out, "{BOLD}{line}{BOLD:#}")?;
    }
    if !plan.instances.is_empty() {
        let month = per_month(plan.cost);
        let about = if plan.instances.iter().any(|m| simulation.is_estimate(m)) { "~" } else { "" };
        match (plan.unpriced(), plan.instances.len()) {
            (0, _) => write!(out, "{GOOD}{about}${}/h{GOOD:#} ({about}{month} a month)", plan.cost)?,
            (unknown, all) if unknown == all => {
                write!(out, "{NOTE}of unknown price{NOTE:#}: the catalogue has none")?;
            }
            (unknown, _) => write!(
                out,
                "{GOOD}{about}${}/h{GOOD:#} ({about}{month} a month) and {NOTE}{} of unknown price{NOTE:#}",
                plan.cost,
                counted(unknown, "instance")
            )?,
        }
        if plan.bound == Price::ZERO {
            writeln!(out)?;
        } else {
            let of = bound_premise(plan.bound_given_domains, plan.bound_given_weights);
            writeln!(
                out,
                "; no plan{of} costs less than ${}/h, gap {:.1} %",
                plan.bound,
                plan.gap() * 100.0
            )?;
            if !plan.bound_relaxes.is_empty() {
                let names: Vec<&str> = plan.bound_relaxes.iter().map(|r| relaxed(*r)).collect();
                writeln!(out, "{DIM}the bound relaxes {}{DIM:#}", names.join(", "))?;
            }
        }
        if !about.is_empty() {
            writeln!(out, "{DIM}~ marks a price that was estimated from others of its family{DIM:#}")?;
        }
    }
    if plan.cut_short {
        writeln!(
            out,
            "{NOTE}the search was cut short: the plan is valid, but a cheaper one may exist{NOTE:#}"
        )?;
    }
    writeln!(out, "{DIM}planned in {} ms{DIM:#}", simulation.elapsed_ms)?;
    Ok(())
}

/// The choices of the plan that its bound takes over, in words after `no plan`.
pub(super) const fn bound_premise(given_domains: bool, given_weights: bool) -> &'static str {
    match (given_domains, given_weights) {
        (false, false) => "",
        (true, false) => " in these domains",
        (false, true) => " in this order of weights",
        (true, true) => " in these domains and this order of weights",
    }
}

/// The constraint in words.
pub(super) const fn relaxed(what: Relaxed) -> &'static str {
    match what {
        Relaxed::Spread => "topology spread",
        Relaxed::Affinity => "pod affinity",
        Relaxed::Limits => "limits",
    }
}

/// Requested and allocatable amount: `1.7/1.93`, `3.1/6.9Gi`.
fn share(used: &Resources, of: &Resources, name: &str) -> String {
    let (used, of) = (used.get(name), of.get(name));
    if name == resources::CPU {
        return format!("{}/{}", decimal(used, 1_000), decimal(of, 1_000));
    }
    const GIB: i64 = 1 << 30;
    format!("{}/{}Gi", decimal(used, GIB), decimal(of, GIB))
}

/// `amount / unit` with at most two decimals.
fn decimal(amount: i64, unit: i64) -> String {
    let hundredths = i128::from(amount) * 100 / i128::from(unit.max(1));
    let text = format!("{}.{:02}", hundredths / 100, (hundredths % 100).abs());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_trimmed() {
        assert_eq!(decimal(1_930, 1_000), "1.93");
        assert_eq!(decimal(2_000, 1_000), "2");
        assert_eq!(decimal(0, 1_000), "0");
        assert_eq!(decimal(i64::MAX, 1), "9223372036854775807");
    }

    #[test]
    fn pools_with_equal_details_share_a_line() {
        let reason = |pool: &str, detail: &str| PendingReason {
            pool: pool.to_owned(),
            reason: "TaintNotTolerated".to_owned(),
            detail: detail.to_owned(),
        };
        let reasons = [reason("a", "x"), reason("b", "y"), reason("c", "x")];
        assert_eq!(
            by_detail(&reasons),
            [("a, c".to_owned(), "TaintNotTolerated", "x"), ("b".to_owned(), "TaintNotTolerated", "y")]
        );
    }
}
