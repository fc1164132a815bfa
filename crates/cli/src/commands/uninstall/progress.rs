//! Lines about steps and about waiting, and the time that is left.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use croft_runtime::clock::{Clock as _, SystemClock};

use crate::{
    output::Output,
    table::{BOLD, DIM},
};

/// Between two looks at what is waited for.
const POLL: Duration = Duration::from_secs(1);

/// Writes progress.
pub(super) struct Progress<'o> {
    out: &'o mut Output,
    deadline: Instant,
    last: String,
}

impl<'o> Progress<'o> {
    pub(super) fn new(out: &'o mut Output, deadline: Instant) -> Self {
        Self { out, deadline, last: String::new() }
    }

    /// Writes that a step is done.
    pub(super) fn done(&mut self, step: &str, what: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{BOLD}{step}{BOLD:#}: {what}")?;
        Ok(self.out.flush()?)
    }

    /// Writes what is waited for, if that has changed, and waits a moment. False once the time is up.
    pub(super) async fn wait_for(&mut self, what: &str) -> anyhow::Result<bool> {
        if what != self.last {
            what.clone_into(&mut self.last);
            writeln!(self.out, "  {DIM}waiting: {what}{DIM:#}")?;
            self.out.flush()?;
        }
        if SystemClock.monotonic() >= self.deadline {
            return Ok(false);
        }
        tokio::time::sleep(POLL).await;
        Ok(true)
    }
}
