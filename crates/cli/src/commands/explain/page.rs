//! A pod as the page shows it to its own people.

use std::io::Write as _;

use croft_inspect::Outlook;
use croft_record::{entry::Entry, record::Record};
use serde::Deserialize;

use super::{past, pod};
use crate::{
    failure::Failure,
    output::Output,
    page_client::PageArgs,
    record::{dollars, write_entries},
    source::ClusterArgs,
    table::{BAD, BOLD, NAME, NOTE},
};

/// Entries shown, the newest.
const ENTRIES_SHOWN: usize = 20;

/// The page's answer about a pod, as far as it is shown.
#[derive(Deserialize)]
struct Detail {
    pod: Option<Pod>,
    node: Option<Node>,
    here: Option<String>,
    outlook: Option<Outlook>,
    timeline: Vec<Entry>,
}

#[derive(Deserialize)]
struct Pod {
    node: Option<String>,
    phase: String,
    tenant: Option<String>,
    reason: String,
    message: String,
    nominated: Option<String>,
    #[serde(default)]
    violations: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    pool: Option<String>,
    instance_type: String,
    zone: String,
    capacity_type: String,
    price: Option<i64>,
}

/// Explains a pod by the page's answer; as it was at a time, by the entries of the log that the page answers with.
pub(super) fn explain_pod(
    page: &PageArgs,
    cluster: &ClusterArgs,
    namespace: &str,
    name: &str,
    at: Option<i64>,
    out: &mut Output,
) -> Result<(), Failure> {
    let Some(detail) = page.get::<Detail>(&format!("pods/{namespace}/{name}"), cluster)? else {
        return Ok(());
    };
    match at {
        Some(at) => {
            let record = Record { entries: detail.timeline, damaged: Vec::new() };
            past::explain_pod(&record, namespace, name, at, out)
        }
        None => write(&detail, namespace, name, out),
    }
}

fn write(detail: &Detail, namespace: &str, name: &str, out: &mut Output) -> Result<(), Failure> {
    let Detail { pod, node, here, outlook, timeline } = detail;
    let phase = pod.as_ref().map_or("gone, or finished", |pod| pod.phase.as_str());
    writeln!(out, "{BOLD}Pod {namespace}/{name}{BOLD:#}: {phase}")?;
    if let Some(pod) = pod {
        if let Some(tenant) = &pod.tenant {
            writeln!(out, "  namespace {namespace} belongs to tenant {NAME}{tenant}{NAME:#}")?;
        }
        for violation in &pod.violations {
            writeln!(out, "  {BAD}placement violation{BAD:#}: {violation}")?;
        }
        match &pod.node {
            Some(name) => {
                placed(name, node.as_ref(), out)?;
                if let Some(here) = here {
                    writeln!(out, "  {here}")?;
                }
            }
            None => pending(pod, outlook.as_ref(), out)?,
        }
    }
    if !timeline.is_empty() {
        writeln!(out, "{BOLD}In the log{BOLD:#}")?;
        write_entries(timeline.iter().skip(timeline.len().saturating_sub(ENTRIES_SHOWN)), out)?;
    }
    Ok(())
}

fn placed(name: &str, node: Option<&Node>, out: &mut Output) -> Result<(), Failure> {
    let Some(Node { pool, instance_type, zone, capacity_type, price }) = node else {
        writeln!(out, "  it runs on node {name}")?;
        return Ok(());
    };
    let price = price.map_or_else(|| "price unknown".to_owned(), dollars);
    let pool = pool.as_deref().unwrap_or("none");
    writeln!(
        out,
        "  it runs on node {name}, {instance_type} in {zone}, {capacity_type}, {price}, in pool {NAME}{pool}{NAME:#}"
    )?;
    Ok(())
}

fn pending(pod: &Pod, outlook: Option<&Outlook>, out: &mut Output) -> Result<(), Failure> {
    if !pod.reason.is_empty() {
        writeln!(out, "  {NOTE}{}{NOTE:#}: {}", pod.reason, pod.message)?;
    }
    if let Some(node) = &pod.nominated {
        writeln!(out, "  it is nominated for node {node}")?;
    }
    let Some(Outlook { instance, node, reasons }) = outlook else {
        writeln!(
            out,
            "  the page computes a plan for others at the moment: repeat this for its place in a plan"
        )?;
        return Ok(());
    };
    if let Some(instance) = instance {
        pod::write_instance(instance, "", " of yours", out)?;
    }
    if let Some(node) = node {
        pod::write_room(node, out)?;
    }
    for reason in reasons {
        pod::write_reason(reason, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::output::Written;

    #[test]
    fn a_pending_pods_answer_is_written_with_reason_and_remedy() {
        let answer = r#"{"version": 1, "namespace": "n", "name": "p", "node": null, "timeline": [],
            "pod": {"namespace": "n", "name": "p", "node": null, "phase": "Pending", "tenant": "shop", "workload": "", "cpu": 0,
                "memory": 0, "since": null, "reason": "PoolLimit", "message": "the limit is reached", "nominated": null},
            "outlook": {"instance": null, "node": null, "reasons": [
                {"pool": "a", "reason": "PoolLimit", "detail": "nodes: 3 of 3", "remedy": "Raise spec.limits."}]}}"#;
        let written = Written::default();
        let mut out = Output::to(Box::new(written.clone()), Box::new(io::sink()));
        write(&serde_json::from_str(answer).unwrap(), "n", "p", &mut out).unwrap();
        out.flush().unwrap();
        let text = written.text();
        assert_eq!(
            text,
            "Pod n/p: Pending\n  namespace n belongs to tenant shop\n  PoolLimit: the limit is reached\n  pool a: PoolLimit: nodes: 3 of 3\n    Raise spec.limits.\n"
        );
    }
}
