//! Lines of progress with elapsed time.

use std::io::{self, Write as _};

use tokio::time::Instant;

use crate::{
    output::Output,
    table::{BOLD, DIM},
};

/// Writes progress to the output, each line with the seconds since the start.
pub(super) struct Progress<'a> {
    out: &'a mut Output,
    started: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(out: &'a mut Output) -> Self {
        Self { out, started: Instant::now() }
    }

    /// Writes a heading.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "\n{BOLD}{text}{BOLD:#}")?;
        self.out.flush()
    }

    /// Writes a line with the seconds since the start.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        let elapsed = self.started.elapsed().as_secs_f64();
        writeln!(self.out, "{DIM}{elapsed:6.1}s{DIM:#}  {text}")?;
        self.out.flush()
    }

    /// The output, for tables.
    pub(super) fn out(&mut self) -> &mut Output {
        self.out
    }
}
