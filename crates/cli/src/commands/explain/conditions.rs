//! Conditions of an object as text.

use std::io::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    failure::Failure,
    output::Output,
    table::{GOOD, NOTE},
};

/// Writes one line per condition.
pub(super) fn write_conditions(conditions: &[Condition], out: &mut Output) -> Result<(), Failure> {
    for condition in conditions {
        let style = if condition.status == "True" { GOOD } else { NOTE };
        write!(out, "  {style}{}={}{style:#} ({})", condition.type_, condition.status, condition.reason)?;
        writeln!(
            out,
            "{}",
            if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) }
        )?;
    }
    Ok(())
}
