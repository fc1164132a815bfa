//! Where the command line writes: the result to standard output, everything else to standard error.
//!
//! Both streams show what others wrote as text (see [`crate::shown`]).

use std::io::{self, Write};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

use crate::{failure::Failure, shown::Shown, table::NOTE};

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Standard output and standard error. Colours are left out where the stream isn't a terminal, or `NO_COLOR` is set.
pub struct Output {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
}

impl Output {
    /// The process's own streams.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            out: Box::new(Shown(io::BufWriter::new(anstream::AutoStream::auto(io::stdout())))),
            err: Box::new(Shown(anstream::AutoStream::auto(io::stderr()))),
        }
    }

    /// Two other writers.
    #[must_use]
    pub fn to(out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        Self { out: Box::new(Shown(out)), err: Box::new(Shown(err)) }
    }

    /// Writes warnings to standard error.
    ///
    /// # Errors
    /// If standard error can't be written.
    pub fn warn(&mut self, warnings: &[String]) -> io::Result<()> {
        for warning in warnings {
            writeln!(self.err, "{NOTE}warning:{NOTE:#} {warning}")?;
        }
        self.err.flush()
    }

    /// Writes a value as JSON.
    pub(crate) fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).context("failed to write the result as JSON")?;
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes a row of comma-separated values (RFC 4180).
    pub(crate) fn csv_row(&mut self, cells: &[String]) -> io::Result<()> {
        let quoted = |cell: &String| {
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        writeln!(self.out, "{}", cells.iter().map(quoted).collect::<Vec<_>>().join(","))
    }

    /// Standard error.
    pub fn err(&mut self) -> &mut dyn Write {
        &mut self.err
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.err.flush()
    }
}

/// The output of a command in a test.
#[cfg(test)]
#[derive(Clone, Default)]
pub(crate) struct Written(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
impl Written {
    /// The text that was written, without styles.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        anstream::adapter::strip_str(&text).to_string()
    }
}
