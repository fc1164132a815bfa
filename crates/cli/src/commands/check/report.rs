//! Results of checks.

use std::{collections::BTreeSet, io::Write as _};

use crate::{
    output::Output,
    table::{BAD, BOLD, DIM, GOOD, NOTE},
};

/// A finding, and its remedy.
pub(super) struct Failed {
    pub(super) what: String,
    pub(super) remedy: String,
}

/// A check's result: details in words, or what is wrong.
pub(super) type Finding = Result<String, Failed>;

/// A failed check.
pub(super) fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err(Failed { what: what.into(), remedy: remedy.into() })
}

/// Writes each check's result and remembers failed ones.
pub(super) struct Report<'o> {
    out: &'o mut Output,
    failed: BTreeSet<&'static str>,
}

impl<'o> Report<'o> {
    pub(super) fn new(out: &'o mut Output) -> Self {
        Self { out, failed: BTreeSet::new() }
    }

    /// Number of checks that failed or were skipped.
    pub(super) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Runs a check unless one of `needs` has failed.
    pub(super) async fn step(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Finding,
    ) -> anyhow::Result<()> {
        let finding =
            if needs.iter().any(|n| self.failed.contains(n)) { Ok(String::new()) } else { check().await };
        self.record(name, needs, finding)
    }

    /// A check of what Croft doesn't own: a finding is written with its remedy, but doesn't fail the installation.
    pub(super) async fn advise(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Finding,
    ) -> anyhow::Result<()> {
        if needs.iter().any(|need| self.failed.contains(need)) {
            return Ok(());
        }
        match check().await {
            Ok(words) => self.record(name, needs, Ok(words)),
            Err(Failed { what, remedy }) => {
                writeln!(self.out, "{NOTE}warn{NOTE:#}  {BOLD}{name}{BOLD:#}: {what}\n      {remedy}")?;
                Ok(())
            }
        }
    }

    fn record(&mut self, name: &'static str, needs: &[&'static str], finding: Finding) -> anyhow::Result<()> {
        if let Some(need) = needs.iter().find(|n| self.failed.contains(*n)) {
            self.failed.insert(name);
            writeln!(self.out, "{DIM}skip{DIM:#}  {BOLD}{name}{BOLD:#}: needs {need}")?;
            return Ok(());
        }
        match finding {
            Ok(words) => writeln!(self.out, "{GOOD}ok{GOOD:#}    {BOLD}{name}{BOLD:#}: {words}")?,
            Err(Failed { what, remedy }) => {
                self.failed.insert(name);
                writeln!(self.out, "{BAD}fail{BAD:#}  {BOLD}{name}{BOLD:#}: {what}\n      {remedy}")?;
            }
        }
        Ok(())
    }
}
