//! Planned workloads as text.

use std::io::Write as _;

use croft_inspect::Planned;

use super::diff;
use crate::{
    failure::Failure,
    output::Output,
    table::{BAD, BOLD, DIM, GOOD, NAME, NOTE, counted},
};

/// Writes one paragraph per workload.
pub(super) fn write(planned: &[Planned], out: &mut Output) -> Result<(), Failure> {
    if planned.is_empty() {
        writeln!(out, "The input has no pods and no workloads.")?;
    }
    for (i, one) in planned.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let pods = one.pods.map(|n| format!(" ({})", counted(n, "pod"))).unwrap_or_default();
        write!(out, "{BOLD}{}{BOLD:#}{pods}: ", one.title())?;
        match (&one.message, &one.pool, &one.tenant) {
            (Some(message), _, _) => writeln!(out, "{BAD}denied{BAD:#}\n  {message}")?,
            (None, _, None) if one.namespace.is_empty() => writeln!(out, "no namespace")?,
            (None, Some(pool), Some(tenant)) => {
                writeln!(out, "tenant {NAME}{tenant}{NAME:#}, pool {NAME}{pool}{NAME:#}")?;
            }
            (None, _, Some(tenant)) => writeln!(out, "tenant {NAME}{tenant}{NAME:#}")?,
            (None, _, None) => writeln!(out, "no tenant's namespace")?,
        }
        if one.outcome == "unchanged" {
            writeln!(out, "  {DIM}no change{DIM:#}")?;
        }
        if let Some(note) = &one.note {
            writeln!(out, "  {DIM}{note}{DIM:#}")?;
        }
        for line in diff::lines(&one.before, &one.after)? {
            match line {
                diff::Line::Same(text) => writeln!(out, "    {DIM}{text}{DIM:#}")?,
                diff::Line::Added(text) => writeln!(out, "  {GOOD}+ {text}{GOOD:#}")?,
                diff::Line::Removed(text) => writeln!(out, "  {BAD}- {text}{BAD:#}")?,
            }
        }
        for warning in one.warnings.iter().chain(one.shortfall.iter().map(|short| &short.message)) {
            writeln!(out, "  {NOTE}warning:{NOTE:#} {warning}")?;
        }
    }
    Ok(())
}
