//! `croft version`: what this program was built from, and the Kubernetes releases that it supports.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

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

/// The commit of a build that wasn't told, as far as it is known: that of the clone in whose folder the program is. A later commit builds
/// this program anew only when it changes something of it.
fn unknown() -> String {
    let program = std::env::current_exe().ok();
    let clone = program.as_deref().and_then(Path::parent).and_then(head);
    clone.map_or_else(
        || "unknown".to_owned(),
        |commit| format!("unknown; its folder belongs to a clone that is at {commit}"),
    )
}

/// The commit of the clone that a folder is in.
fn head(folder: &Path) -> Option<String> {
    let asked = ["rev-parse", "--short=12", "HEAD"];
    let answer = Command::new("git").arg("-C").arg(folder).args(asked).stderr(Stdio::null()).output().ok()?;
    let commit = String::from_utf8(answer.stdout).ok()?;
    Some(commit.trim().to_owned()).filter(|commit| answer.status.success() && !commit.is_empty())
}

/// Runs the command.
pub(crate) fn run(args: &VersionArgs, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    let VersionArgs { output } = args;
    match output {
        Format::Text => {
            writeln!(out, "croft       {}", build.version)?;
            writeln!(out, "commit      {}", build.commit.map_or_else(unknown, str::to_owned))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_outside_a_clone_has_no_commit() {
        assert_eq!(head(Path::new("/nonexistent")), None);
    }
}
