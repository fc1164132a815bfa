//! Names of the objects that hold slots.

use crate::{snapshot::writer::FIRST_SLOT, writer::SLOTS};

/// The beginning of the names of the ledger's slots.
pub const LEDGER_PREFIX: &str = "croft-ledger-";
/// The beginning of the names of the snapshots' slots.
pub const SNAPSHOT_PREFIX: &str = "croft-snapshot-";

/// The name of the object that holds a slot: of the log, of the ledger, whose slots follow, or of the snapshots, whose slots come last.
#[must_use]
pub fn slot_name(slot: usize) -> String {
    match (slot.checked_sub(SLOTS), slot.checked_sub(FIRST_SLOT)) {
        (_, Some(of_snapshots)) => format!("{SNAPSHOT_PREFIX}{of_snapshots:02}"),
        (Some(of_ledger), None) => format!("{LEDGER_PREFIX}{of_ledger:02}"),
        (None, None) => format!("croft-record-{slot:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_log_ledger_and_snapshots_follow_each_other() {
        let names = [0, SLOTS - 1, SLOTS, FIRST_SLOT - 1, FIRST_SLOT].map(slot_name);
        assert_eq!(
            names,
            ["croft-record-00", "croft-record-15", "croft-ledger-00", "croft-ledger-03", "croft-snapshot-00"]
        );
    }
}
