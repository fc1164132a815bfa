//! `--at`: a node or a pod as it was, from the decision log.

use std::io::Write as _;

use clap::Args;
use croft_record::{
    entry::{Entry, EntryKind},
    query::{self, NodeAt, Phase},
    record::Record,
};
use croft_runtime::clock::{Clock as _, SystemClock};

use crate::{
    failure::Failure,
    output::Output,
    record::{Period, RecordArgs, dollars, parse_moment, text, write_entries},
    source::ClusterArgs,
    table::{BOLD, NAME, NOTE, counted, shortened},
};

/// Entries shown before and after the time.
const ENTRIES_SHOWN: usize = 20;

/// Arguments for a look into the past.
#[derive(Args, Clone, Debug)]
pub(super) struct PastArgs {
    /// As it was at this time, from the decision log: 02:14 (the last such time, UTC), 2026-11-25T02:14:00Z, or how long ago, such
    /// as 90m
    #[arg(long, value_name = "TIME", conflicts_with = "filenames")]
    at: Option<String>,
    #[command(flatten)]
    record: RecordArgs,
}

/// The log and the time, if one is given.
pub(super) fn load(
    args: &PastArgs,
    cluster: &ClusterArgs,
    out: &mut Output,
) -> Result<Option<(Record, i64)>, Failure> {
    let Some(at) = moment(args)? else { return Ok(None) };
    Ok(Some((args.record.load(cluster, Period::at(at), out)?, at)))
}

/// The time, if one is given.
pub(super) fn moment(PastArgs { at, record: _ }: &PastArgs) -> Result<Option<i64>, Failure> {
    at.as_ref().map(|at| parse_moment(at, SystemClock.wall())).transpose()
}

/// Explains a node, or the node of a NodeClaim, as it was.
pub(super) fn explain_node(record: &Record, name: &str, at: i64, out: &mut Output) -> Result<(), Failure> {
    let found = query::node_at(record, name, at)
        .ok_or_else(|| RecordArgs::missing(record, &format!("node or NodeClaim {name}")))?;
    let NodeAt { claim, phase, pool, tenants, price, pods, conditions, before, after } = found;
    writeln!(out, "{BOLD}Node {name} at {}{BOLD:#}: {}", text(at), phase.as_str())?;
    if let Some(pool) = pool {
        let users =
            if tenants.is_empty() { String::new() } else { format!(", used by {}", shortened(tenants, 5)) };
        let instance = before.iter().rev().find_map(|entry| entry.instance.as_ref());
        let template = instance.map(|instance| instance.template.as_str()).filter(|name| !name.is_empty());
        let template = template.map(|name| format!(", template {name}")).unwrap_or_default();
        writeln!(out, "  pool {NAME}{pool}{NAME:#}{template}{users}")?;
    }
    if !claim.is_empty() {
        writeln!(out, "  NodeClaim {claim}")?;
    }
    if let Some(price) = price {
        writeln!(out, "  costs {}", dollars(price))?;
    }
    if !pods.is_empty() {
        writeln!(out, "  it ran {}: {}", counted(pods.len(), "pod"), shortened(pods, 5))?;
    }
    if let Some(created) = before.iter().find(|entry| entry.kind == EntryKind::Create) {
        let why = match (created.pods.len(), created.reason.as_str()) {
            (0, "") => "for static capacity or headroom of its pool".to_owned(),
            (0, reason) => format!("{reason}: {}", created.message),
            (count, _) => format!("for {}: {}", counted(count, "pod"), shortened(&created.pods, 5)),
        };
        writeln!(out, "  {BOLD}launched{BOLD:#} {why}")?;
    }
    match phase {
        Phase::Removing | Phase::Gone => {
            if let Some(why) = removal(&before) {
                writeln!(out, "  {NOTE}removed{NOTE:#} at {}: {}", text(why.at), because(why))?;
            }
        }
        _ => {
            for condition in conditions.values().filter(|entry| !entry.condition.ends_with("=True")) {
                writeln!(
                    out,
                    "  {NOTE}{}{NOTE:#} ({}): {}",
                    condition.condition, condition.reason, condition.message
                )?;
            }
            if let Some(why) = removal(&after) {
                writeln!(out, "  {NOTE}removed later{NOTE:#}, at {}: {}", text(why.at), because(why))?;
            }
        }
    }
    write_parts(&before, &after, out)
}

/// The decision that ended the node: the last event before its NodeClaim was deleted, or the deletion itself.
fn removal<'a>(entries: &[&'a Entry]) -> Option<&'a Entry> {
    let end =
        entries.iter().position(|entry| matches!(entry.kind, EntryKind::Delete | EntryKind::Deleting))?;
    let decided = entries.iter().take(end).rfind(|entry| entry.kind == EntryKind::Event);
    // Without an event of the controller, a user deleted it.
    decided.or(entries.get(end)).copied()
}

fn because(entry: &Entry) -> String {
    match (entry.reason.as_str(), entry.kind) {
        ("", EntryKind::Deleting) => "its NodeClaim was deleted, and not by the controller".to_owned(),
        ("", _) => "the controller deleted its NodeClaim".to_owned(),
        (reason, _) => format!("{reason}: {}", entry.message),
    }
}

/// Explains a pod as it was.
pub(super) fn explain_pod(
    record: &Record,
    namespace: &str,
    name: &str,
    at: i64,
    out: &mut Output,
) -> Result<(), Failure> {
    let found = query::pod_at(record, namespace, name, at)
        .ok_or_else(|| RecordArgs::missing(record, &format!("pod {namespace}/{name}")))?;
    let last = found.before.iter().rfind(|entry| entry.kind != EntryKind::Unknown);
    let state = match last {
        None => "not there yet".to_owned(),
        Some(entry) => match entry.kind {
            EntryKind::Pending => format!("pending, {}: {}", entry.reason, entry.message),
            EntryKind::Bound | EntryKind::State | EntryKind::EvictionBlocked => {
                format!("ran on node {}", entry.node)
            }
            EntryKind::Evicted => format!("evicted from node {}", entry.node),
            EntryKind::Delete => "deleted by the controller".to_owned(),
            _ => format!("pending, and waited for NodeClaim {}", entry.claim_name()),
        },
    };
    writeln!(out, "{BOLD}Pod {namespace}/{name} at {}{BOLD:#}: {state}", text(at))?;
    write_parts(&found.before, &found.after, out)
}

fn write_parts(before: &[&Entry], after: &[&Entry], out: &mut Output) -> Result<(), Failure> {
    if !before.is_empty() {
        writeln!(out, "\n{BOLD}up to then{BOLD:#}{}", left_out(before.len()))?;
        write_entries(before.iter().skip(before.len().saturating_sub(ENTRIES_SHOWN)).copied(), out)?;
    }
    if !after.is_empty() {
        writeln!(out, "\n{BOLD}later{BOLD:#}{}", left_out(after.len()))?;
        write_entries(after.iter().take(ENTRIES_SHOWN).copied(), out)?;
    }
    Ok(())
}

fn left_out(count: usize) -> String {
    match count.checked_sub(ENTRIES_SHOWN).filter(|more| *more > 0) {
        Some(more) => format!(" ({more} more entries; croft history shows all)"),
        None => String::new(),
    }
}
