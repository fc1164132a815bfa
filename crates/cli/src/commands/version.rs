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
use serde::Serialize;
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

/// The commit at which a clone is, and its date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Head {
    commit: String,
    date: String,
}

/// What is known of the commit of a build that wasn't told: that of the clone in whose folder the program is. A later commit builds
/// this program anew only when it changes something of it.
fn clone_of_program() -> Option<Head> {
    head(std::env::current_exe().ok()?.parent()?)
}

/// The commit of the clone that a folder is in.
fn head(folder: &Path) -> Option<Head> {
    let asked = ["log", "-1", "--abbrev=12", "--date=format-local:%Y-%m-%d", "--format=%h %cd"];
    let answer = Command::new("git")
        .env("TZ", "UTC")
        .arg("-C")
        .arg(folder)
        .args(asked)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let (commit, date) = text.trim().split_once(' ').filter(|_| answer.status.success())?;
    Some(Head { commit: commit.to_owned(), date: date.to_owned() })
}

/// Runs the command.
pub(crate) fn run(args: &VersionArgs, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    let VersionArgs { output } = args;
    let clone = build.commit.is_none().then(clone_of_program).flatten();
    match output {
        Format::Text => {
            writeln!(out, "croft       {}", build.version)?;
            let (commit, date) = match &clone {
                Some(Head { commit, date }) => (
                    format!("{commit}, at which its clone is; the program may be of an earlier one"),
                    &**date,
                ),
                None => (build.commit.unwrap_or("unknown").to_owned(), build.date.unwrap_or("unknown")),
            };
            writeln!(out, "commit      {commit}\ndate        {date}")?;
            writeln!(out, "Kubernetes  {OLDEST} to {NEWEST}")?;
        }
        Format::Json => {
            let fields = json!({
                "version": build.version,
                "commit": build.commit,
                "date": build.date,
                "clone": clone,
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
    fn folder_of_a_clone_has_its_commit_with_a_date() {
        let folder = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            let mut git = Command::new("git");
            git.env("GIT_COMMITTER_DATE", "2026-11-23T12:00:00Z").arg("-C").arg(folder.path());
            assert!(git.args(identity).args(words).output().unwrap().status.success(), "{words:?}");
        };
        git(&["init", "--quiet"]);
        assert_eq!(head(folder.path()), None);
        git(&["commit", "--quiet", "--allow-empty", "--message", "first"]);
        let Head { commit, date } = head(folder.path()).unwrap();
        assert!(commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
        assert_eq!(date, "2026-11-23");
    }

    #[test]
    fn folder_outside_a_clone_has_no_commit() {
        assert_eq!(head(Path::new("/nonexistent")), None);
    }
}
