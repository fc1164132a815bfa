//! Arguments and steps of the command.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use croft_inspect::admission::Admission;
use croft_manifest::{Input, InputError, to_yaml};
use croft_runtime::clock::{Clock as _, SystemClock};
use kube::Client;

use super::{
    fill::Measured,
    live,
    rows::{Filter, Rows, Sort},
    text,
};
use crate::{activity::Activity, cluster_reader::read, failure::Failure, output::Output, source::SourceArgs};

/// Arguments of `croft top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Show nodes too
    #[arg(long)]
    nodes: bool,
    /// Only this tenant, its pools and their nodes
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only this pool, its tenants and its nodes
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Only nodes in this zone
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Order of the rows; numbers are descending
    #[arg(long, value_enum, default_value_t = Sort::Name)]
    sort: Sort,
    /// How to print it. csv has the tenants, or the nodes with --nodes
    #[arg(short, long, value_enum, default_value_t = TopFormat::Text)]
    output: TopFormat,
    /// Show it again every so many seconds, until interrupted; on a terminal as a view with keys
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), num_args = 0..=1, default_missing_value = "2")]
    watch: Option<u64>,
}

impl TopArgs {
    /// True unless the cluster is read.
    pub(crate) fn reads_files(&self) -> bool {
        !self.source.is_live()
    }
}

/// How the rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TopFormat {
    /// For people
    Text,
    /// With every name
    Wide,
    /// For programs
    Json,
    /// For programs
    Yaml,
    /// Comma-separated values
    Csv,
}

/// Runs the command.
pub(crate) fn run(args: &TopArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let TopArgs { source, watch, .. } = args;
    let Some(seconds) = watch else {
        let (input, measured) = if source.is_live() {
            let _activity = Activity::start("reading the cluster");
            source.cluster().run(async |client| observed(&client).await)?
        } else {
            let input = source.load(out)?;
            let at = input.recorded_at;
            (input, Measured { at, ..Measured::default() })
        };
        show(&rows(&input, &measured, args)?, args, out)?;
        return Ok(ExitCode::SUCCESS);
    };
    if !source.is_live() {
        return Err(InputError::Other(
            "--watch needs a cluster: files don't change by themselves".to_owned(),
        )
        .into());
    }
    let every = Duration::from_secs(*seconds);
    let is_view = args.output == TopFormat::Text && std::io::stdout().is_terminal();
    source.cluster().run(async |client| {
        if is_view {
            return live::show(every, args.sort, async || {
                let (input, measured) = observed(&client).await?;
                rows(&input, &measured, args).map_err(|error| anyhow::anyhow!("{error}"))
            })
            .await;
        }
        loop {
            let (input, measured) = observed(&client).await?;
            let shown = rows(&input, &measured, args).and_then(|rows| show(&rows, args, out));
            shown.map_err(|error| anyhow::anyhow!("{error}"))?;
            out.flush().context("failed to write")?;
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The cluster, and what its nodes use.
async fn observed(client: &Client) -> anyhow::Result<(Input, Measured)> {
    let input = read(client).await?;
    let measured = Measured::read(client, SystemClock.wall()).await;
    Ok((input, measured))
}

fn rows(input: &Input, measured: &Measured, args: &TopArgs) -> Result<Rows, Failure> {
    let filter =
        Filter { tenant: args.tenant.as_deref(), pool: args.pool.as_deref(), zone: args.zone.as_deref() };
    let mut rows = Rows::new(input, measured, &Admission::new(input)?, filter)?;
    rows.sort(args.sort);
    Ok(rows)
}

fn show(rows: &Rows, args: &TopArgs, out: &mut Output) -> Result<(), Failure> {
    match args.output {
        TopFormat::Text => text::write(rows, args.nodes, false, out)?,
        TopFormat::Wide => text::write(rows, args.nodes, true, out)?,
        TopFormat::Csv => text::write_csv(rows, args.nodes, out)?,
        TopFormat::Json => out.json(rows)?,
        TopFormat::Yaml => {
            let document = serde_json::to_value(rows).map_err(anyhow::Error::from)?;
            out.write_all(to_yaml(&[document])?.as_bytes())?;
        }
    }
    Ok(())
}
