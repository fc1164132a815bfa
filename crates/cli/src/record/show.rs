//! Entries as tables and sentences.

use std::io;

use croft_record::entry::{Entry, EntryKind};
use croft_scheduler::Price;

use super::time;
use crate::{
    output::Output,
    table::{Table, counted, shortened},
};

/// Pods that a line names.
const PODS_SHOWN: usize = 3;

/// A price per hour.
pub(crate) fn dollars(micros: i64) -> String {
    format!("${}/h", Price::from_micros(micros))
}

/// Writes entries as a table.
pub(crate) fn write_entries<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
    out: &mut Output,
) -> io::Result<()> {
    let mut table = Table::new("TIME|WHAT|OBJECT|WHY");
    for entry in entries {
        let object = if entry.object.is_empty() { String::new() } else { entry.object.to_string() };
        table.row(vec![time::text(entry.at), entry.kind.as_str().to_owned(), object, why(entry)]);
    }
    table.write(out)
}

/// Reason, message and figures of an entry.
pub(super) fn why(entry: &Entry) -> String {
    let mut parts: Vec<String> = Vec::new();
    let named = if entry.condition.is_empty() {
        entry.reason.clone()
    } else {
        format!("{} ({})", entry.condition, entry.reason)
    };
    parts.extend(Some(named).filter(|text| !text.is_empty()));
    if let Some(plan) = &entry.plan {
        // A plan with an instance of unknown price has none.
        let bound = if plan.bound == 0 && plan.instances > 0 {
            "its bound is unknown".to_owned()
        } else {
            format!("no plan is below {}", dollars(plan.bound))
        };
        parts.push(format!(
            "{} for {} at {} ({bound}); {} on nodes, {} pending; inputs {}",
            counted(plan.instances, "instance"),
            counted(plan.pods, "pod"),
            dollars(plan.cost),
            plan.placed,
            plan.unschedulable,
            plan.inputs,
        ));
    }
    parts.extend(Some(entry.message.clone()).filter(|text| !text.is_empty()));
    if entry.kind == EntryKind::State {
        parts.extend(entry.price.map(dollars));
    }
    if !entry.pods.is_empty() {
        let pods = format!("{}: {}", counted(entry.pods.len(), "pod"), shortened(&entry.pods, PODS_SHOWN));
        parts.push(pods);
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use croft_record::entry::PlanFigures;

    use super::*;

    #[test]
    fn bound_of_a_plan_is_unknown_where_an_instance_has_no_price() {
        let said = |instances: usize, bound: i64| {
            let plan = PlanFigures { instances, bound, ..PlanFigures::default() };
            why(&Entry { plan: Some(plan), ..Entry::new(0, EntryKind::Plan) })
        };
        assert!(said(1, 0).contains("(its bound is unknown)"), "{}", said(1, 0));
        for (instances, bound) in [(0, 0), (1, 1_000_000)] {
            assert!(said(instances, bound).contains("(no plan is below $"), "{}", said(instances, bound));
        }
    }
}
