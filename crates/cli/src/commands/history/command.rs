//! Arguments and steps of the command.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::ExitCode,
};

use clap::{Args, Subcommand};
use croft_manifest::closest;
use croft_record::{
    decision::{decisions, prices},
    entry::Entry,
    query,
    record::History,
};
use croft_runtime::clock::{Clock as _, SystemClock};

use crate::{
    failure::Failure,
    output::{Format, Output},
    page_client::PageArgs,
    record::{Period, RecordArgs, text, write_decisions, write_entries},
    source::ClusterArgs,
    table::{BOLD, counted},
};

/// Entries of an answer of the page, at most.
const PAGE_ENTRIES: usize = 1_000;

/// Arguments of `croft history`.
#[derive(Args, Clone, Debug)]
pub struct HistoryArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Launches, moves, drains and refusals that concern a tenant
    Tenant(TenantArgs),
}

#[derive(Args, Clone, Debug)]
struct TenantArgs {
    /// The tenant's name
    name: String,
    /// From this time on: 02:14 (the last such time, UTC), 2026-11-25T02:14:00Z, or how long ago, such as 90m
    #[arg(long, value_name = "TIME", default_value = "24h")]
    from: String,
    /// Up to this time; default: now
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Show each entry, and not one line for each decision
    #[arg(long)]
    verbose: bool,
    /// How to print it; json has each entry
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
pub(crate) fn run(args: &HistoryArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let HistoryArgs { what: What::Tenant(args) } = args;
    let TenantArgs { name, from, to, verbose: _, output: _, record, page, cluster } = args;
    let period = Period::parse(from, to.as_deref(), SystemClock.wall())?;
    let route = format!("history?tenant={name}&from={}&to={}", period.from, period.to);
    if let Some(History { begins, mut entries }) = page.get(&route, cluster)? {
        // The page has the newest first.
        entries.reverse();
        if entries.len() >= PAGE_ENTRIES {
            out.warn(&[format!(
                "the page shows the last {PAGE_ENTRIES} entries: earlier ones need an earlier --to"
            )])?;
        }
        let entries: Vec<&Entry> = entries.iter().collect();
        write(args, period, begins, &entries, &prices(entries.iter().copied()), out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let log = record.load(cluster, period, out)?;
    let Period { from, to } = period;
    let entries: Vec<&Entry> = query::tenant(&log, name, from, to).collect();
    if entries.is_empty() {
        let known: Vec<&str> = query::tenants(&log).into_iter().collect();
        if !known.contains(&name.as_str()) {
            let hint = closest(name, &known).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
            return Err(RecordArgs::missing(&log, &format!("tenant {name}{hint}")));
        }
    }
    write(args, period, log.begins(), &entries, &prices(&log.entries), out)?;
    Ok(ExitCode::SUCCESS)
}

fn write(
    args: &TenantArgs,
    Period { from, to }: Period,
    begins: Option<i64>,
    entries: &[&Entry],
    prices: &BTreeMap<&str, i64>,
    out: &mut Output,
) -> Result<(), Failure> {
    let TenantArgs { name, verbose, .. } = args;
    match args.output {
        Format::Json => out.json(entries)?,
        Format::Text => {
            let mut count =
                if entries.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", entries.len()) };
            let found = decisions(entries);
            if !verbose && !entries.is_empty() {
                count.push_str(&format!(" in {} (--verbose shows each)", counted(found.len(), "decision")));
            }
            writeln!(out, "{BOLD}Tenant {name}{BOLD:#}, {} to {}: {count}", text(from), text(to))?;
            if let Some(begin) = begins.filter(|begin| *begin > from) {
                writeln!(out, "  the decision log begins at {}", text(begin))?;
            }
            let pods: BTreeSet<&String> = entries.iter().flat_map(|entry| &entry.pods).collect();
            if !pods.is_empty() {
                writeln!(out, "  about {}", counted(pods.len(), "pod"))?;
            }
            if *verbose && !entries.is_empty() {
                write_entries(entries.iter().copied(), out)?;
            } else if !found.is_empty() {
                write_decisions(&found, prices, out)?;
            }
        }
    }
    Ok(())
}
