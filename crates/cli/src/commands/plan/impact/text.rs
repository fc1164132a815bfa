//! The impact as tables and sentences.

use std::io::Write as _;

use croft_inspect::inventory::Cost;

use super::model::Impact;
use crate::{
    costs::cost_text,
    failure::Failure,
    output::Output,
    table::{BAD, BOLD, DIM, GOOD, NAME, NOTE, Table, counted},
};

/// Writes the effects of the edit.
pub(in crate::commands::plan) fn write(impact: &Impact, out: &mut Output) -> Result<(), Failure> {
    for object in &impact.objects {
        writeln!(out, "{BOLD}{} {}{BOLD:#}: {}", object.kind, object.name, object.change)?;
    }
    if !impact.objects.is_empty() {
        writeln!(out)?;
    }
    if impact.is_empty() {
        writeln!(out, "{GOOD}no effect on running pods and nodes{GOOD:#}")?;
        return Ok(());
    }
    let rows = impact.pods.iter().map(|one| (&one.pod, one.action, &one.why));
    table(out, "POD", rows)?;
    table(out, "DAEMONSET", impact.daemon_sets.iter().map(|one| (&one.daemon_set, one.action, &one.why)))?;
    table(out, "OBJECT", impact.given.iter().map(|one| (&one.object, one.action, &one.why)))?;
    if !impact.nodes.is_empty() {
        let mut table = Table::new("NODE|POOL|REASON|DETAIL");
        for one in &impact.nodes {
            table.row(vec![one.node.clone(), one.pool.clone(), one.reason.to_owned(), one.detail.clone()]);
        }
        table.write(out)?;
        writeln!(out)?;
    }
    if !impact.launched.is_empty() {
        let mut table = Table::new("LAUNCHED>|POOL|TYPE|ZONE|CAPACITY|$/H EACH>");
        for one in &impact.launched {
            table.row(vec![
                one.count.to_string(),
                one.pool.clone(),
                one.instance_type.clone(),
                one.zone.clone(),
                one.capacity_type.to_owned(),
                one.price.map_or_else(|| "unknown".to_owned(), |price| price.to_string()),
            ]);
        }
        table.write(out)?;
        writeln!(out)?;
    }
    for one in &impact.pending {
        writeln!(out, "{BAD}pod {} becomes unschedulable{BAD:#}: {}", one.pod, one.why)?;
    }
    summary(impact, out)
}

fn table<'a>(
    out: &mut Output,
    title: &'static str,
    rows: impl Iterator<Item = (&'a String, &'static str, &'a String)>,
) -> Result<(), Failure> {
    let mut table = Table::new(&format!("{title}|ACTION|WHY"));
    for (name, action, why) in rows {
        let style = if action == "reported" { DIM } else { NOTE };
        table.styled(vec![(name.clone(), NAME), (action.to_owned(), style), (why.clone(), DIM)]);
    }
    if !table.is_empty() {
        table.write(out)?;
        writeln!(out)?;
    }
    Ok(())
}

fn summary(impact: &Impact, out: &mut Output) -> Result<(), Failure> {
    let pods = |action: &str| impact.pods.iter().filter(|one| one.action == action).count();
    let nodes = |reasons: &[&str]| impact.nodes.iter().filter(|one| reasons.contains(&one.reason)).count();
    let rewritten = impact.daemon_sets.iter().filter(|one| one.action == "rewritten").count();
    let given = |action: &str| impact.given.iter().filter(|one| one.action == action).count();
    let launched: usize = impact.launched.iter().map(|one| one.count).sum();
    let mut parts = Vec::new();
    for (count, what, done) in [
        (pods("evicted"), "pod", "evicted"),
        (pods("recreated"), "pending pod", "recreated"),
        (pods("refused"), "pod", "refused"),
        (pods("reported"), "pod", "reported"),
        (rewritten, "DaemonSet", "rewritten"),
        (given("created"), "object", "created"),
        (given("changed"), "object", "changed"),
        (given("removed"), "object", "removed"),
        (given("exceeded"), "quota", "exceeded"),
        (given("closed"), "namespace", "closed"),
        (nodes(&["Drifted", "Expired"]), "node", "replaced"),
        (nodes(&["Empty", "ScaledDown"]), "node", "terminated"),
        (launched, "instance", "launched"),
    ] {
        if count > 0 {
            parts.push(format!("{} {done}", counted(count, what)));
        }
    }
    if !parts.is_empty() {
        writeln!(out, "{BOLD}{}{BOLD:#}", parts.join(", "))?;
    }
    let cost = |sum, unknown| Cost { sum, unknown, estimated: false };
    let before = cost(impact.cost_per_hour_before, impact.instances_of_unknown_price_before);
    let after = cost(impact.cost_per_hour_after, impact.instances_of_unknown_price_after);
    if before != after {
        writeln!(out, "{} instead of {}", cost_text(after), cost_text(before))?;
    }
    Ok(())
}
