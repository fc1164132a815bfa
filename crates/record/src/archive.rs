//! Names in an object store, which keeps segments and closed hours longer than their slots do.
//!
//! ```text
//!   log/2026-11-25/021403-0000000042.jsonl.gz    a segment: day and time of its first entry (UTC), and its number
//!   ledger/2026-11-25.jsonl.gz                   the closed hours of a day
//!   snapshots/2026-11-25/020007-0000000009.jsonl.gz   snapshots of the cluster: day and time of the first
//! ```

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::{
    ledger::closed::{DAY_MILLIS, day_of, first_hour, is_hours_slot},
    segment,
    snapshot::{read, writer::is_snapshot_slot},
    writer::SLOTS,
};

/// The folder of segments.
pub const LOG: &str = "log/";
/// The folder of snapshots.
pub const SNAPSHOTS: &str = "snapshots/";
/// The folder of closed hours.
pub const LEDGER: &str = "ledger/";
/// The end of every name.
const ENDING: &str = ".jsonl.gz";
/// The first entry's day and time in a segment's name.
const BEGINS: &str = "%Y-%m-%d/%H%M%S";

fn utc(millis: i64, format: &str) -> String {
    Timestamp::from_millisecond(millis)
        .unwrap_or_default()
        .to_zoned(TimeZone::UTC)
        .strftime(format)
        .to_string()
}

/// The segments that are numbered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// The decision log.
    Log,
    /// Snapshots of the cluster.
    Snapshots,
}

/// The ring of a slot; none for the ledger.
#[must_use]
pub const fn ring(slot: usize) -> Option<Ring> {
    if slot < SLOTS {
        Some(Ring::Log)
    } else if is_snapshot_slot(slot) {
        Some(Ring::Snapshots)
    } else {
        None
    }
}

/// The number of the segment that a slot holds; numbers grow within a ring.
#[must_use]
pub fn number(slot: usize, bytes: &[u8]) -> Option<u64> {
    head(slot, bytes).map(|(_, number, _)| number)
}

/// Folder and number of the segment in a slot, and the time of its first entry or snapshot.
fn head(slot: usize, bytes: &[u8]) -> Option<(&'static str, u64, i64)> {
    let (folder, (number, begins)) = match ring(slot)? {
        Ring::Log => (LOG, segment::head(bytes)?),
        Ring::Snapshots => (SNAPSHOTS, read::head(bytes)?),
    };
    Some((folder, number, begins))
}

/// The name of what a slot holds. `None` for a slot that is empty or damaged, and for that of closed days, which are the sums of hours.
///
/// The segment that a leader has `continued`, by its number and since when, has a name of this leader. So a former leader's late write replaces
/// nothing, and a log that was restored from a backup hides nothing of what was written before.
#[must_use]
pub fn name(slot: usize, bytes: &[u8], continued: Option<(u64, i64)>) -> Option<String> {
    if is_hours_slot(slot) {
        return Some(hours_name(first_hour(bytes)?));
    }
    let (folder, number, begins) = head(slot, bytes)?;
    let continued = continued.filter(|(continued, _)| *continued == number);
    let by = continued.map(|(_, at)| format!("-{at}")).unwrap_or_default();
    Some(format!("{folder}{}-{number:010}{by}{ENDING}", utc(begins, BEGINS)))
}

/// The name of the closed hours of a day.
fn hours_name(day: i64) -> String {
    format!("{LEDGER}{}{ENDING}", utc(day, "%Y-%m-%d"))
}

/// The names of the closed hours of each day from `from` to `to`.
pub fn hours_between(from: i64, to: i64) -> impl Iterator<Item = String> {
    std::iter::successors(Some(day_of(from)), |day| day.checked_add(DAY_MILLIS))
        .take_while(move |day| *day <= to)
        .map(hours_name)
}

/// The names of segments of one folder with entries or snapshots from `from` to `to`: those that begin then, and the last ones before.
#[must_use]
pub fn segments_between(mut names: Vec<String>, from: i64, to: i64) -> Vec<String> {
    names.retain(|name| begins(name).is_some_and(|begins| begins <= to));
    names.sort_unstable();
    let before = names.iter().rev().filter_map(|name| begins(name)).find(|begins| *begins <= from);
    names.retain(|name| before.is_none_or(|before| begins(name) >= Some(before)));
    names
}

/// The second in which a segment begins.
fn begins(name: &str) -> Option<i64> {
    let name = [LOG, SNAPSHOTS].iter().find_map(|folder| name.strip_prefix(folder))?;
    let (begins, _) = name.split_at_checked("2026-11-25/021403".len())?;
    let at = DateTime::strptime(BEGINS, begins).ok()?;
    Some(at.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Entry, EntryKind},
        snapshot::{mirror::Mirror, writer::SnapshotWriter},
        writer::{Bounds, Writer},
    };

    const SECOND: i64 = 1_000;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn a_segment_is_named_by_its_first_entry_and_number() {
        let (mut writer, _) = Writer::resume([], Bounds::default());
        let first = at("2026-11-25T02:14:03.9Z");
        let entries = [Entry::new(first, EntryKind::Lead), Entry::new(first + SECOND, EntryKind::Plan)];
        let bytes = writer.append(&mut entries.clone()).pop().unwrap().bytes;
        assert_eq!(name(0, &bytes, None).unwrap(), "log/2026-11-25/021403-0000000000.jsonl.gz");
        assert_eq!(name(0, &bytes, Some((0, 7))).unwrap(), "log/2026-11-25/021403-0000000000-7.jsonl.gz");
        assert_eq!(name(0, &bytes, Some((1, 7))), name(0, &bytes, None), "another segment is continued");
        for (slot, bytes) in [(0, &[][..]), (0, &bytes[..9]), (SLOTS, &bytes[..]), (SLOTS + 3, &bytes[..])] {
            assert_eq!(name(slot, bytes, None), None, "{slot}");
        }
    }

    #[test]
    fn a_segment_of_snapshots_is_named_by_its_first_and_number() {
        let (mut mirror, at) = (Mirror::default(), at("2026-11-25T02:00:07Z"));
        let write = SnapshotWriter::resume([], 10_000).append(&mut mirror, at).unwrap();
        let named = "snapshots/2026-11-25/020007-0000000000";
        assert_eq!(name(write.slot, &write.bytes, None).unwrap(), format!("{named}.jsonl.gz"));
        assert_eq!(name(write.slot, &write.bytes, Some((0, 7))).unwrap(), format!("{named}-7.jsonl.gz"));
        let names = segments_between(vec![format!("{named}.jsonl.gz")], at + 9, at + 9);
        assert_eq!(names.len(), 1);
        assert_eq!(name(0, &write.bytes, None), None, "it is no segment of the log");
    }

    #[test]
    fn segments_of_a_time_are_those_that_begin_in_it_and_the_last_before() {
        let names = [
            "log/2026-11-24/235959-0000000001.jsonl.gz",
            "log/2026-11-25/010000-0000000002-17.jsonl.gz",
            "log/2026-11-25/010000-0000000002.jsonl.gz",
            "log/2026-11-25/020000-0000000003.jsonl.gz",
            "log/2026-11-25/030000-0000000004.jsonl.gz",
            "log/of-others",
        ];
        let between = |from, to| {
            segments_between(names.iter().rev().map(|name| (*name).to_owned()).collect(), at(from), at(to))
        };
        assert_eq!(between("2026-11-25T01:30:00Z", "2026-11-25T02:00:00Z"), names[1..4]);
        assert_eq!(between("2026-11-20T00:00:00Z", "2026-11-25T00:00:00Z"), names[..1], "from the first on");
        assert_eq!(between("2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z"), names[4..5]);
        assert_eq!(between("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"), [""; 0]);
    }

    #[test]
    fn hours_are_by_day() {
        let days: Vec<_> = hours_between(at("2026-11-25T23:59:00Z"), at("2026-11-27T00:00:00Z")).collect();
        assert_eq!(days, ["25", "26", "27"].map(|day| format!("ledger/2026-11-{day}.jsonl.gz")));
    }
}
