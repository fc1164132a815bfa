//! Two sides compared, as text and as Markdown: the same parts.

use std::io::Write as _;

use croft_inspect::amounts::dollars;
use croft_scheduler::Price;

use crate::{
    commands::plan::impact::Edited,
    costs::estimate_mark,
    failure::Failure,
    output::Output,
    table::{BAD, BOLD, GOOD, NOTE, Table},
};

/// The parts of a comparison, in the order of the text.
pub(super) struct Report<'a> {
    pub(super) changes: &'a [Edited],
    /// What was compared, where the changes don't say it: a time, or where the pools come from.
    pub(super) subject: Option<String>,
    pub(super) tables: Vec<Table>,
    /// Sentences about single pods.
    pub(super) lines: Vec<String>,
    pub(super) verdict: Verdict,
    pub(super) notes: Vec<String>,
}

/// The result in one sentence.
pub(super) struct Verdict {
    /// Micro-dollars of the second side less those of the first; `None` if a price is unknown.
    pub(super) difference: Option<i64>,
    /// True if a price of either side is an estimate.
    pub(super) is_estimate: bool,
    /// Both amounts.
    pub(super) sides: [String; 2],
    /// After each amount: such as ` a month`.
    pub(super) unit: &'static str,
    /// The difference as a share, such as ` (8.4 %)`.
    pub(super) share: String,
}

impl Verdict {
    fn sentence(&self) -> String {
        let Self { difference, is_estimate, sides: [before, after], unit, share } = self;
        let Some(difference) = *difference else {
            return format!(
                "the difference isn't known, since a price isn't: {after}{unit} instead of {before}"
            );
        };
        let word = match difference {
            0 => return format!("the same cost: {after}{unit}"),
            less if less < 0 => "less",
            _ => "more",
        };
        let amount = dollars(Price::from_micros(difference.saturating_abs()));
        let about = estimate_mark(*is_estimate);
        format!("{about}{amount}{unit} {word}{share}: {after} instead of {before}")
    }
}

impl Report<'_> {
    /// Writes it for a terminal.
    pub(super) fn text(&self, out: &mut Output) -> Result<(), Failure> {
        for object in self.changes {
            writeln!(out, "{BOLD}{} {}{BOLD:#}: {}", object.kind, object.name, object.change)?;
        }
        if let Some(subject) = &self.subject {
            writeln!(out, "{subject}")?;
        }
        writeln!(out)?;
        for table in &self.tables {
            table.write(out)?;
            writeln!(out)?;
        }
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        let colour = match self.verdict.difference {
            None => NOTE,
            Some(0) => BOLD,
            Some(less) if less < 0 => GOOD,
            Some(_) => BAD,
        };
        writeln!(out, "{colour}{}{colour:#}", self.verdict.sentence())?;
        for note in &self.notes {
            writeln!(out, "{NOTE}{note}{NOTE:#}")?;
        }
        Ok(())
    }

    /// Writes it for a pull request.
    pub(super) fn markdown(&self, out: &mut Output) -> Result<(), Failure> {
        writeln!(out, "### {}\n", self.verdict.sentence())?;
        if let Some(subject) = &self.subject {
            writeln!(out, "{subject}.\n")?;
        }
        for object in self.changes {
            writeln!(out, "- {} `{}`: {}", object.kind, object.name, object.change)?;
        }
        for table in &self.tables {
            writeln!(out)?;
            table.write_markdown(out)?;
        }
        if !self.lines.is_empty() {
            writeln!(out)?;
            for line in &self.lines {
                writeln!(out, "- {line}")?;
            }
        }
        for note in &self.notes {
            writeln!(out, "\n{note}.")?;
        }
        Ok(())
    }
}

/// A difference of micro-dollars as a share of the first side, such as ` (8.4 %)`; nothing if that side is free.
pub(super) fn share(difference: i64, of: i64) -> String {
    if of == 0 {
        return String::new();
    }
    format!(" ({:.1} %)", 100.0 * difference.saturating_abs() as f64 / of as f64)
}

/// The difference of two counts.
pub(super) fn less(after: usize, before: usize) -> i64 {
    let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    signed(after) - signed(before)
}

/// A difference with its sign.
pub(super) fn signed(difference: i64) -> String {
    if difference > 0 { format!("+{difference}") } else { difference.to_string() }
}
