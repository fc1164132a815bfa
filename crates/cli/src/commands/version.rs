//! `croft version`: what this program was built from, and the Kubernetes releases that it supports.

use std::{io::Write as _, process::ExitCode};

use clap::Args;
use croft_runtime::{
    build::Build,
    kubernetes::{NEWEST, OLDEST},
};
use serde_json::json;

use crate::{
    failure::Failure,
    output::{Format, Output},
};

/// Arguments of `croft version`.
#[derive(Args, Clone, Debug)]
pub struct VersionArgs {
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// Runs the command.
pub(crate) fn run(args: &VersionArgs, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    let VersionArgs { output } = args;
    match output {
        Format::Text => {
            writeln!(out, "croft       {}", build.version)?;
            writeln!(out, "commit      {}", build.commit.unwrap_or("unknown"))?;
            writeln!(out, "date        {}", build.date.unwrap_or("unknown"))?;
            writeln!(out, "Kubernetes  {OLDEST} to {NEWEST}")?;
        }
        Format::Json => {
            let fields = json!({
                "version": build.version,
                "commit": build.commit,
                "date": build.date,
                "kubernetes": {"oldest": OLDEST.to_string(), "newest": NEWEST.to_string()},
            });
            writeln!(out, "{fields:#}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
