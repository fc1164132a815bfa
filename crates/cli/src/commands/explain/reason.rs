//! The reasons for pending pods: meaning and remedy.

use std::io::Write as _;

use croft_inspect::reasons::MEANINGS;
use croft_manifest::{InputError, closest};

use crate::{failure::Failure, output::Output, table::BOLD};

/// Explains one reason, or all.
pub(super) fn explain(name: Option<&str>, out: &mut Output) -> Result<(), Failure> {
    let chosen: Vec<_> =
        MEANINGS.iter().filter(|(reason, _)| name.is_none_or(|n| n.eq_ignore_ascii_case(reason))).collect();
    if let (Some(name), true) = (name, chosen.is_empty()) {
        let all: Vec<&str> = MEANINGS.iter().map(|(reason, _)| *reason).collect();
        let hint = closest(name, &all).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        return Err(InputError::Other(format!("there is no reason {name}{hint}")).into());
    }
    for (reason, meaning) in chosen {
        writeln!(out, "{BOLD}{reason}{BOLD:#}\n  {meaning}")?;
    }
    Ok(())
}
