//! Arguments and steps of the command.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use croft_inspect::{add_shortfalls, admission::Admission};
use croft_manifest::LoadOptions;

use super::{impact, page, text};
use crate::{
    activity::Activity,
    catalog_file::instance_types,
    failure::Failure,
    output::{Format, Output},
    page_client::PageArgs,
    source::{FileArgs, load_files},
};

/// Arguments of `croft plan`.
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
    page: PageArgs,
    /// Catalogue of instance types and prices, as a JSON file, for --live, --current, and pods that wait for a limit; the built-in one if
    /// left out
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Exit with 1 if a pod will be denied, one of another controller's kind (such as a Rollout) included
    #[arg(long)]
    fail_on_denied: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let PlanArgs { files, live, current, page, catalog, fail_on_denied, output } = args;
    if page.is_given() && !live && current.is_empty() {
        let has_denied = page::plan(page, files, *output, out)?;
        return Ok(if *fail_on_denied && has_denied { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let input = files.load(out)?;
    let now = if *live {
        Some(files.cluster().read()?)
    } else if current.is_empty() {
        None
    } else {
        Some(load_files(current, &LoadOptions::default().namespace, out)?)
    };
    let types = instance_types(catalog.as_deref())?;
    let mut warnings = Vec::new();
    let (mut planned, edit, cluster) = match now {
        None => {
            let admission = Admission::new(&input)?;
            warnings.append(&mut admission.warnings());
            (croft_inspect::plan(&input, &admission), None, None)
        }
        Some(now) => {
            let (mut edit, then) = {
                let _activity = Activity::start("planning the cluster as it is, and with the changes");
                impact::impact(&now, &input, &types)?
            };
            let admission = Admission::new(&then)?;
            warnings.append(&mut admission.warnings());
            warnings.append(&mut edit.take_warnings());
            (croft_inspect::plan(&input, &admission), Some(edit), Some(then))
        }
    };
    // Admission is known also where the scheduler refuses a value.
    if let Err(error) = add_shortfalls(&mut planned, cluster.as_ref().unwrap_or(&input), &input, types) {
        warnings.push(format!("pods that wait for a limit aren't shown: {error}"));
    }
    out.warn(&warnings)?;
    match output {
        Format::Json => {
            let mut document = serde_json::json!({ "workloads": planned });
            if let (Some(edit), Some(map)) = (&edit, document.as_object_mut()) {
                map.insert("impact".to_owned(), serde_json::to_value(edit).unwrap_or_default());
            }
            out.json(&document)?;
        }
        Format::Text => {
            if let Some(edit) = &edit {
                impact::write(edit, out)?;
            }
            if edit.is_none() || !planned.is_empty() {
                text::write(&planned, out)?;
            }
        }
    }
    let denied = planned.iter().any(|p| p.outcome == "denied");
    Ok(if *fail_on_denied && denied { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
