//! Arguments and steps of the command.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use croft_inspect::{
    advice::{Focus, Request, advise},
    other_amounts,
    simulation::time_of,
};
use croft_scheduler::Price;
use kube::ResourceExt as _;

use super::write;
use crate::{
    activity::Activity, catalog_file::instance_types, failure::Failure, output::Output, source::SourceArgs,
};

/// Arguments of `croft advise`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Catalogue of instance types and prices, as a JSON file; the built-in one if left out
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Only constraints of this tenant: of its namespaces, and of the pools that it lists
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The least savings that are shown, in dollars per hour
    #[arg(long, value_name = "DOLLARS", default_value = "0.01")]
    min_saving: Price,
    /// Search at most this many clusters without a constraint
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: usize,
    /// How the prices are printed
    #[arg(short, long, value_enum, default_value_t = AdviceFormat::Text)]
    output: AdviceFormat,
}

/// How prices are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AdviceFormat {
    /// For people: a table, and below it what to change
    Text,
    /// For people: one table with everything
    Wide,
    /// For programs
    Json,
    /// For programs
    Yaml,
    /// Comma-separated values
    Csv,
}

/// Runs the command.
pub(crate) fn run(args: &AdviseArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let AdviseArgs { source, catalog, tenant, min_saving, most, output } = args;
    let input = source.load(out)?;
    if let Some(name) = tenant.as_ref().filter(|name| input.tenants.get("", name).is_none()) {
        let names: Vec<String> = input.tenants.iter().map(|tenant| tenant.name_any()).collect();
        return Err(Failure::missing("Tenant", name, names.iter().map(String::as_str)));
    }
    let request = Request {
        focus: Focus::All,
        tenant: tenant.clone(),
        // Of files it also names that of objects which name none.
        namespace: source.cluster().named_namespace().map(str::to_owned),
        visible: None,
        // A price of nothing is no price.
        min_saving: (*min_saving).max(Price::from_micros(1)),
        most: *most,
        now: time_of(&input),
    };
    let types = instance_types(catalog.as_deref())?;
    let activity = Activity::start("planning the cluster as it is");
    let mut searches = 0;
    let advice = advise(&input, &types, &request, &mut || {
        activity.say(format!("searching without a constraint, {searches} of at most {most} times"));
        searches += 1;
    })?;
    drop(activity);
    // They have no price: the plan is made with amounts that the nodes don't have.
    out.warn(&other_amounts(&input, tenant.as_deref()))?;
    match output {
        AdviceFormat::Text => write::text(&advice, out)?,
        AdviceFormat::Wide => write::wide(&advice, out)?,
        AdviceFormat::Json => out.json(&advice)?,
        AdviceFormat::Yaml => write::yaml(&advice, out)?,
        AdviceFormat::Csv => write::csv(&advice, out)?,
    }
    Ok(ExitCode::SUCCESS)
}
