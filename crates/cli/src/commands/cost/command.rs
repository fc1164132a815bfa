//! Arguments and steps of the command.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use croft_record::ledger::{
    book::{Statement, hour_of},
    record::statement,
};
use croft_runtime::clock::{Clock as _, SystemClock};

use super::{
    focus,
    group::{Dimension, group},
    write,
};
use crate::{
    failure::Failure,
    output::Output,
    page_client::PageArgs,
    record::{Period, RecordArgs, text},
    source::ClusterArgs,
};

/// Arguments of `croft cost`.
#[derive(Args, Clone, Debug)]
pub struct CostArgs {
    /// Sum by these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tenant,pool")]
    by: Vec<Dimension>,
    /// From the hour of this time on: 02:14 (the last such time, UTC), 2026-11-25T02:14:00Z, or how long ago, such as 90m
    #[arg(long, value_name = "TIME", default_value = "24h")]
    from: String,
    /// Up to this time; default: now. An hour that has begun counts up to then
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How to print it; focus has one row for each hour and account, whatever --by says
    #[arg(short, long, value_enum, default_value_t = CostFormat::Text)]
    output: CostFormat,
    /// The AWS account that is billed: BillingAccountId of focus
    #[arg(long, value_name = "ACCOUNT", default_value = "")]
    billing_account: String,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How costs are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CostFormat {
    /// For people
    Text,
    /// Comma-separated values
    Csv,
    /// For programs
    Json,
    /// Comma-separated values in the columns of FOCUS 1.2
    Focus,
}

/// Runs the command.
pub(crate) fn run(args: &CostArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let CostArgs { by, from, to, output, billing_account, record, page, cluster } = args;
    let period = Period::parse(from, to.as_deref(), SystemClock.wall())?;
    let Period { from, to } = period;
    let route = format!("cost?from={from}&to={to}");
    let Statement { begins, is_complete, lines } = match page.get(&route, cluster)? {
        Some(statement) => statement,
        None => {
            let (log, ledger) = record.load_with_ledger(cluster, period, out)?;
            Statement {
                begins: [log.begins(), ledger.begins()].into_iter().flatten().min(),
                is_complete: ledger.is_complete(hour_of(from), to),
                lines: statement(&log, &ledger, hour_of(from), to),
            }
        }
    };
    if let Some(begin) = begins.filter(|begin| *begin > from) {
        out.warn(&[format!("the decision log begins at {}: what was paid before isn't in it", text(begin))])?;
    } else if !is_complete {
        let message =
            "costs of this time are missing: the decision log went back too little when an hour was closed";
        out.warn(&[message.to_owned()])?;
    }
    match output {
        CostFormat::Text => write::text(by, &group(by, &lines), out)?,
        CostFormat::Csv => write::csv(by, &group(by, &lines), out)?,
        CostFormat::Json => write::json(by, &group(by, &lines), out)?,
        CostFormat::Focus => focus::write(&lines, billing_account, out)?,
    }
    Ok(ExitCode::SUCCESS)
}
