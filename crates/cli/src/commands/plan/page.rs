//! The plan of a manifest as the page computes it, for users with rights in their own namespaces only.

use std::io::Write as _;

use croft_inspect::{ExistingNode, NewInstance, PendingPods, PendingReason, Planned, WhatIf};
use croft_manifest::{load_raw, to_yaml};
use serde_json::Value;

use crate::{
    failure::Failure,
    output::{Format, Output},
    page_client::PageArgs,
    record::dollars,
    source::FileArgs,
    table::{BAD, BOLD, GOOD, NAME, NOTE, counted, shortened},
};

/// Pods that a line names.
const PODS_SHOWN: usize = 5;

/// Sends the files to the page and writes its answer. True if a pod will be denied.
pub(super) fn plan(
    page: &PageArgs,
    files: &FileArgs,
    output: Format,
    out: &mut Output,
) -> Result<bool, Failure> {
    let read = load_raw(files.filenames())?;
    out.warn(&read.warnings)?;
    let objects: Vec<Value> = read.objects.into_iter().map(|object| object.value).collect();
    let route = format!("what-if?namespace={}", files.cluster().namespace_of_files());
    let Some(answer) = page.post::<Value>(&route, to_yaml(&objects)?, files.cluster())? else {
        return Ok(false);
    };
    let parsed: WhatIf = serde_json::from_value(answer.clone()).map_err(anyhow::Error::from)?;
    match output {
        Format::Json => out.json(&answer)?,
        Format::Text => write(&parsed, out)?,
    }
    Ok(parsed.workloads.iter().any(|workload| workload.outcome == "denied"))
}

fn write(answer: &WhatIf, out: &mut Output) -> Result<(), Failure> {
    let WhatIf { workloads, instances, existing, pending, adds, unpriced, warnings } = answer;
    out.warn(warnings)?;
    for Planned {
        kind, namespace, name, template, pool, outcome, message, note, warnings, shortfall, ..
    } in workloads
    {
        let style = match &**outcome {
            "denied" => BAD,
            "unknown" => NOTE,
            _ => GOOD,
        };
        let template = template.as_ref().map(|path| format!(", {path}")).unwrap_or_default();
        write!(out, "{BOLD}{kind} {namespace}/{name}{template}{BOLD:#}: {style}{outcome}{style:#}")?;
        if let Some(pool) = pool {
            write!(out, ", pool {NAME}{pool}{NAME:#}")?;
        }
        writeln!(out, "{}", message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())?;
        let of_admission = note.as_deref().into_iter().chain(warnings.iter().map(String::as_str));
        for said in of_admission.chain(shortfall.iter().map(|short| &*short.message)) {
            writeln!(out, "  {NOTE}{said}{NOTE:#}")?;
        }
    }
    for NewInstance { pool, instance_type, zone, capacity_type, price, estimated: _, pods } in instances {
        writeln!(
            out,
            "  a new {instance_type} in {zone}, {capacity_type}, in pool {pool}, {}, for {}",
            price.map_or_else(|| "price unknown".to_owned(), dollars),
            counted(pods.len(), "pod")
        )?;
    }
    for ExistingNode { node, coming: _, pods } in existing {
        writeln!(out, "  node {node} takes {}", counted(pods.len(), "pod"))?;
    }
    for PendingPods { pods, reasons } in pending {
        writeln!(out, "  {NOTE}pending{NOTE:#}: {}", shortened(pods, PODS_SHOWN))?;
        for PendingReason { pool, reason, detail, remedy: _ } in reasons {
            let pool = if pool.is_empty() { String::new() } else { format!("pool {pool}: ") };
            writeln!(out, "    {pool}{reason}: {detail}")?;
        }
    }
    let unknown = match unpriced {
        0 => String::new(),
        count => format!(" and {} of unknown price", counted(*count, "instance")),
    };
    writeln!(out, "It adds {}{unknown}.", dollars(*adds))?;
    Ok(())
}
