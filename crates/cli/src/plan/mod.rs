//! `croft plan`: what the pods of a manifest will become.
//!
//! Each workload's template is made into a pod, goes through the API server's own plugins and then through the
//! very functions that the webhook calls; what they change is shown, and what they refuse. With `--live`, the Tenants,
//! pools, classes and settings of the files are compared with those of the cluster: see [`impact`].

mod diff;
mod impact;

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::Value;

use crate::{
    admission::{Gate, Outcome, Verdict},
    failure::Failure,
    input::{FileArgs, Input, LoadOptions, builtin, load},
    live::ClusterArgs,
    output::Output,
    simulate::{Format, is_created, read_catalog},
    table::{BAD, BOLD, DIM, GOOD, NAME, NOTE, counted},
    workload::workloads,
};

/// Options of `croft plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Compare with the cluster: what the Tenants, TenantPools, EC2NodeClasses and CroftConfig of the files would evict,
    /// recreate, launch, replace and terminate once applied
    #[arg(long)]
    live: bool,
    /// The same, with the cluster as these files or folders hold it; may be given more than once
    #[arg(long, value_name = "PATH", conflicts_with = "live")]
    current: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// With --live or --current: catalogue of instance types and prices, as a JSON file; the built-in one if left out
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Exit with 1 if a pod will be refused
    #[arg(long)]
    fail_on_denied: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// What becomes of one workload's pods.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Kind of the workload, or Pod.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many pods it asks for; absent for DaemonSets, where the nodes decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
    /// The tenant that the namespace belongs to.
    pub tenant: Option<String>,
    /// The pool that the pods will run in.
    pub pool: Option<String>,
    /// `unchanged`, `changed` or `denied`.
    pub outcome: &'static str,
    /// Why the pods are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What is changed: JSON Patch on the pod, or on the DaemonSet.
    pub patch: Value,
    /// What to look at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(skip)]
    before: Value,
    #[serde(skip)]
    after: Value,
}

/// Plans every pod and workload of `input` that isn't in a cluster yet, by what `gate` says.
fn plan(input: &Input, gate: &Gate) -> Vec<Planned> {
    let mut planned = Vec::new();
    for pod in input.pods.iter().filter(|p| !is_created(&p.object)) {
        let (before, verdict) = judge(&pod.object, input, gate);
        planned.push(entry("Pod", &pod.object, Some(1), &before, verdict));
    }
    for workload in workloads(input) {
        let prototype = workload.prototype();
        if let Some(set) = workload.daemon_set {
            let verdict = gate.daemon_set(set);
            planned.push(entry("DaemonSet", &prototype, None, &to_json(set), verdict));
            continue;
        }
        let (before, verdict) = judge(&prototype, input, gate);
        planned.push(entry(workload.kind.as_str(), &prototype, Some(workload.missing), &before, verdict));
    }
    planned
}

/// The pod before Croft sees it, and what Croft says.
fn judge(pod: &Pod, input: &Input, gate: &Gate) -> (Value, Verdict) {
    let mut created = pod.clone();
    let verdict = match builtin::admit(&mut created, input) {
        Ok(()) => gate.pod(&created),
        Err(refusal) => Verdict::denied(refusal),
    };
    (to_json(&created), verdict)
}

fn entry<T: Serialize>(
    kind: &str,
    pod: &Pod,
    pods: Option<usize>,
    before: &Value,
    verdict: Verdict<T>,
) -> Planned {
    let Verdict { outcome, tenant, pool, warnings, patch } = verdict;
    let (word, message, after) = match outcome {
        Outcome::Unchanged => ("unchanged", None, before.clone()),
        Outcome::Changed(after) => ("changed", None, to_json(&after)),
        Outcome::Denied(message) => ("denied", Some(message), before.clone()),
    };
    Planned {
        kind: kind.to_owned(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        pods,
        tenant,
        pool,
        outcome: word,
        message,
        patch,
        warnings,
        before: before.clone(),
        after,
    }
}

fn to_json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let PlanArgs { files, live, current, cluster, catalog, fail_on_denied, output } = args;
    let mut input = files.load()?;
    let now = if *live {
        Some(cluster.run(async |client| crate::live::read(&client).await)?)
    } else if current.is_empty() {
        None
    } else {
        Some(load(current, &LoadOptions::default())?)
    };
    let mut warnings = std::mem::take(&mut input.warnings);
    let (planned, edit) = match now {
        None => {
            let gate = Gate::new(&input)?;
            warnings.append(&mut gate.warnings());
            (plan(&input, &gate), None)
        }
        Some(now) => {
            let types = match catalog {
                Some(path) => read_catalog(path)?,
                None => croft_cloud::builtin_catalog(),
            };
            let (mut edit, then) = impact::impact(&now, &input, &types)?;
            let gate = Gate::new(&then)?;
            warnings.append(&mut gate.warnings());
            warnings.append(&mut edit.take_warnings());
            (plan(&input, &gate), Some(edit))
        }
    };
    out.warn(&warnings)?;
    match output {
        Format::Json => {
            let mut document = serde_json::json!({ "workloads": planned });
            if let (Some(edit), Some(map)) = (&edit, document.as_object_mut()) {
                map.insert("impact".to_owned(), to_json(edit));
            }
            let text = serde_json::to_string_pretty(&document).context("failed to write the plan as JSON")?;
            writeln!(out, "{text}")?;
        }
        Format::Text => {
            if let Some(edit) = &edit {
                impact::write(edit, out)?;
            }
            if edit.is_none() || !planned.is_empty() {
                text(&planned, out)?;
            }
        }
    }
    let denied = planned.iter().any(|p| p.outcome == "denied");
    Ok(if *fail_on_denied && denied { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(planned: &[Planned], out: &mut Output) -> Result<(), Failure> {
    if planned.is_empty() {
        writeln!(out, "The input holds no pod and no workload that makes one.")?;
    }
    for (i, one) in planned.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let pods = one.pods.map(|n| format!(" ({})", counted(n, "pod"))).unwrap_or_default();
        write!(out, "{BOLD}{} {}/{}{BOLD:#}{pods}: ", one.kind, one.namespace, one.name)?;
        match (&one.message, &one.pool, &one.tenant) {
            (Some(message), _, _) => writeln!(out, "{BAD}refused{BAD:#}\n  {message}")?,
            (None, Some(pool), Some(tenant)) => {
                writeln!(out, "tenant {NAME}{tenant}{NAME:#}, pool {NAME}{pool}{NAME:#}")?;
            }
            (None, _, Some(tenant)) => writeln!(out, "tenant {NAME}{tenant}{NAME:#}")?,
            (None, _, None) => writeln!(out, "no tenant's namespace")?,
        }
        if one.outcome == "unchanged" {
            writeln!(out, "  {DIM}already right, nothing is changed{DIM:#}")?;
        }
        for line in diff::lines(&one.before, &one.after) {
            match line {
                diff::Line::Same(text) => writeln!(out, "    {DIM}{text}{DIM:#}")?,
                diff::Line::Added(text) => writeln!(out, "  {GOOD}+ {text}{GOOD:#}")?,
                diff::Line::Removed(text) => writeln!(out, "  {BAD}- {text}{BAD:#}")?,
            }
        }
        for warning in &one.warnings {
            writeln!(out, "  {NOTE}warning:{NOTE:#} {warning}")?;
        }
    }
    Ok(())
}
