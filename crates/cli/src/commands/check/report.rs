//! Results of checks.

use std::{collections::BTreeSet, io::Write as _, process::ExitCode};

use serde::Serialize;

use crate::{
    activity::Activity,
    output::{Format, Output},
    table::{BAD, BOLD, DIM, GOOD, NOTE, counted},
};

/// A finding, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) what: String,
    /// Instructions; there may be several lines.
    pub(super) remedy: String,
}

/// A check's result: details in words, or what is wrong.
pub(super) type Finding = Result<String, Failed>;

/// The result of a check that may also find nothing out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All is well; details in words.
    Ok(String),
    /// Something to mend that doesn't stop Croft.
    Warn(Failed),
    /// Something that stops Croft, or a part of it.
    Fail(Failed),
    /// It can't be known, such as for want of a right; why.
    Unknown(String),
}

impl Outcome {
    /// A finding that doesn't stop Croft.
    pub(super) fn warn(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Warn(Failed { what: what.into(), remedy: remedy.into() })
    }

    /// A finding that stops Croft.
    pub(super) fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Fail(Failed { what: what.into(), remedy: remedy.into() })
    }
}

/// A failed check.
pub(super) fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err(Failed { what: what.into(), remedy: remedy.into() })
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// A finding about what Croft doesn't own.
    Warn,
    Fail,
    /// A check that it needs has failed.
    Skip,
    /// Something that wasn't checked, on purpose.
    Note,
    /// Something that can't be known.
    Unknown,
}

/// One line of the report.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

/// The whole report as JSON.
#[derive(Serialize)]
struct Document<'r> {
    checks: &'r [Entry],
    /// Number of checks that failed or could not run.
    failed: usize,
}

/// Writes each check's result and remembers failed ones.
pub(super) struct Report<'o> {
    out: &'o mut Output,
    format: Format,
    entries: Vec<Entry>,
    failed: BTreeSet<&'static str>,
}

impl<'o> Report<'o> {
    pub(super) fn new(out: &'o mut Output, format: Format) -> Self {
        Self { out, format, entries: Vec::new(), failed: BTreeSet::new() }
    }

    /// Runs a check unless one of `needs` has failed.
    pub(super) async fn step(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Finding,
    ) -> anyhow::Result<()> {
        if let Some(need) = self.missing(needs) {
            self.failed.insert(name);
            return self.write(Entry {
                name,
                status: Status::Skip,
                detail: format!("needs {need}"),
                remedy: String::new(),
            });
        }
        let finding = watched(name, check).await;
        if finding.is_err() {
            self.failed.insert(name);
        }
        self.write(entry(name, finding, Status::Fail))
    }

    /// A check of what Croft doesn't own: a finding is written with its remedy, but doesn't fail the installation.
    pub(super) async fn advise(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Finding,
    ) -> anyhow::Result<()> {
        if self.missing(needs).is_some() {
            return Ok(());
        }
        let finding = watched(name, check).await;
        self.write(entry(name, finding, Status::Warn))
    }

    /// A check that may find nothing out; skipped if one of `needs` has failed.
    pub(super) async fn examine(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Outcome,
    ) -> anyhow::Result<()> {
        if self.missing(needs).is_some() {
            return self.step(name, needs, async || Ok(String::new())).await;
        }
        let finding = match watched(name, check).await {
            Outcome::Ok(detail) => entry(name, Ok(detail), Status::Fail),
            Outcome::Warn(failed) => entry(name, Err(failed), Status::Warn),
            Outcome::Unknown(detail) => {
                Entry { name, status: Status::Unknown, detail, remedy: String::new() }
            }
            Outcome::Fail(failed) => {
                self.failed.insert(name);
                entry(name, Err(failed), Status::Fail)
            }
        };
        self.write(finding)
    }

    /// True if the check `name` has failed or couldn't run.
    pub(super) fn has_failed(&self, name: &'static str) -> bool {
        self.failed.contains(name)
    }

    /// Records what isn't checked, and why; the first line is the summary.
    pub(super) fn note(&mut self, name: &'static str, detail: impl Into<String>) -> anyhow::Result<()> {
        let text = detail.into();
        let (detail, more) = text.split_once('\n').unwrap_or((&text, ""));
        self.write(Entry { name, status: Status::Note, detail: detail.to_owned(), remedy: more.to_owned() })
    }

    /// Writes the end of the report, which is `healthy` if nothing failed. Returns the exit code.
    pub(super) fn finish(self, healthy: &str) -> anyhow::Result<ExitCode> {
        let failed = self.failed.len();
        match self.format {
            Format::Text if failed == 0 => writeln!(self.out, "{GOOD}{healthy}{GOOD:#}")?,
            Format::Text => {
                writeln!(self.out, "{BAD}{} failed or could not run{BAD:#}", counted(failed, "check"))?;
            }
            Format::Json => {
                let document = Document { checks: &self.entries, failed };
                writeln!(self.out, "{}", serde_json::to_string_pretty(&document)?)?;
            }
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn missing(&self, needs: &[&'static str]) -> Option<&'static str> {
        needs.iter().find(|need| self.failed.contains(*need)).copied()
    }

    fn write(&mut self, entry: Entry) -> anyhow::Result<()> {
        if self.format == Format::Text {
            let Entry { name, status, detail, remedy } = &entry;
            let (word, style) = match status {
                Status::Ok => ("ok  ", GOOD),
                Status::Warn => ("warn", NOTE),
                Status::Fail => ("fail", BAD),
                Status::Skip => ("skip", DIM),
                Status::Note | Status::Unknown => ("note", DIM),
            };
            let known = if *status == Status::Unknown { "not known: " } else { "" };
            writeln!(
                self.out,
                "{style}{}{style:#}{}  {BOLD}{name}{BOLD:#}: {known}{detail}",
                word.trim_end(),
                " ".repeat(word.len() - word.trim_end().len())
            )?;
            for line in remedy.lines() {
                writeln!(self.out, "      {line}")?;
            }
            self.out.flush()?;
        }
        self.entries.push(entry);
        Ok(())
    }
}

fn entry(name: &'static str, finding: Finding, otherwise: Status) -> Entry {
    match finding {
        Ok(detail) => Entry { name, status: Status::Ok, detail, remedy: String::new() },
        Err(Failed { what, remedy }) => Entry { name, status: otherwise, detail: what, remedy },
    }
}

/// Runs a check, and shows its name meanwhile.
async fn watched<T>(name: &'static str, check: impl AsyncFnOnce() -> T) -> T {
    let _activity = Activity::start(format!("checking {name}"));
    check().await
}
