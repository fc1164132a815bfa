//! Results of checks.

use std::{collections::BTreeSet, fmt, io::Write as _, process::ExitCode};

use serde::Serialize;

use crate::{
    activity::Activity,
    failure::said,
    output::{Format, Output},
    table::{BAD, BOLD, DIM, GOOD, NOTE, counted},
};

/// A check's result: details in words, or what isn't well.
pub(super) type Finding = Result<String, Problem>;

/// What isn't well, or can't be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: Status,
    pub(super) what: String,
    /// Instructions; there may be several lines.
    pub(super) remedy: String,
}

impl Problem {
    /// Something that stops Croft, or a part of it.
    pub(super) fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Fail, what: what.into(), remedy: remedy.into() }
    }

    /// What the API server didn't say about something that Croft needs, such as `failed to list pools`.
    pub(super) fn unread(what: &str, error: &kube::Error) -> Self {
        Self::fail(format!("{what}: {}", said(error)), "ask for the ClusterRole croft-view")
    }

    /// Something that can't be known, such as for want of a right; why.
    pub(super) fn unknown(why: impl Into<String>) -> Self {
        Self { status: Status::Unknown, what: why.into(), remedy: String::new() }
    }

    /// The same for what the API server didn't say.
    pub(super) fn unsaid(what: &str, error: &kube::Error) -> Self {
        Self::unknown(format!("{what}: {}", said(error)))
    }

    /// What can't fail.
    pub(super) fn bug(what: &str, error: &dyn fmt::Display) -> Self {
        Self::fail(format!("{what}: {error}"), "report this as a bug of croft")
    }
}

#[cfg(feature = "aws")]
impl From<&croft_cloud_aws::Unread> for Problem {
    fn from(why: &croft_cloud_aws::Unread) -> Self {
        Self::unknown(why.to_string())
    }
}

/// A check that failed.
pub(super) fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err(Problem::fail(what, remedy))
}

/// A check that found something to mend that doesn't stop Croft.
pub(super) fn warn(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err(Problem { status: Status::Warn, ..Problem::fail(what, remedy) })
}

/// A check that found nothing out, and why.
pub(super) fn unknown(why: impl Into<String>) -> Finding {
    Err(Problem::unknown(why))
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
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
        check: impl Future<Output = Finding>,
    ) -> anyhow::Result<()> {
        let finding = match self.missing(needs) {
            Some(need) => Err(Problem { status: Status::Skip, ..Problem::fail(format!("needs {need}"), "") }),
            None => watched(name, check).await,
        };
        if finding.as_ref().is_err_and(|one| matches!(one.status, Status::Skip | Status::Fail)) {
            self.failed.insert(name);
        }
        self.write(name, finding)
    }

    /// A check of what Croft doesn't own: a finding is written with its remedy, but doesn't fail the installation.
    pub(super) async fn advise(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl Future<Output = Finding>,
    ) -> anyhow::Result<()> {
        if self.missing(needs).is_some() {
            return Ok(());
        }
        let finding = watched(name, check).await;
        self.write(name, finding.map_err(|problem| Problem { status: Status::Warn, ..problem }))
    }

    /// True if the check `name` has failed or couldn't run.
    pub(super) fn has_failed(&self, name: &'static str) -> bool {
        self.failed.contains(name)
    }

    /// Records what isn't checked, and why; the first line is the summary.
    pub(super) fn note(&mut self, name: &'static str, detail: impl Into<String>) -> anyhow::Result<()> {
        let text = detail.into();
        let (detail, more) = text.split_once('\n').unwrap_or((&text, ""));
        self.write(name, Err(Problem { status: Status::Note, ..Problem::fail(detail, more) }))
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

    fn write(&mut self, name: &'static str, finding: Finding) -> anyhow::Result<()> {
        let (status, detail, remedy) = match finding {
            Ok(detail) => (Status::Ok, detail, String::new()),
            Err(Problem { status, what, remedy }) => (status, what, remedy),
        };
        if self.format == Format::Text {
            let (word, style) = match status {
                Status::Ok => ("ok  ", GOOD),
                Status::Warn => ("warn", NOTE),
                Status::Fail => ("fail", BAD),
                Status::Skip => ("skip", DIM),
                Status::Note | Status::Unknown => ("note", DIM),
            };
            let known = if status == Status::Unknown { "not known: " } else { "" };
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
        self.entries.push(Entry { name, status, detail, remedy });
        Ok(())
    }
}

/// Runs a check, and shows its name meanwhile.
async fn watched(name: &'static str, check: impl Future<Output = Finding>) -> Finding {
    let _activity = Activity::start(format!("checking {name}"));
    check.await
}
