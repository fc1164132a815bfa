//! The file of figures: a JSON object per line, the newest last.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::Path,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::bench::figures::Figures;

/// One benchmark, run once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) bench: String,
    /// Twelve digits, `-changed` behind them if the checkout has changes.
    pub(crate) commit: String,
    /// RFC 3339, UTC.
    pub(crate) date: String,
    /// Model and number of processors.
    pub(crate) computer: String,
    /// Runs that the figures are medians of.
    pub(crate) runs: usize,
    pub(crate) figures: Figures,
}

/// The last line of a benchmark; none in a file that isn't there.
///
/// # Errors
/// A file that can't be read, or a line that is no entry.
pub(crate) fn last(file: &Path, bench: &str) -> anyhow::Result<Option<Entry>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("failed to read {}", file.display())),
    };
    let mut found = None;
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let entry: Entry = serde_json::from_str(line)
            .with_context(|| format!("{}:{number} is no entry: remove the line", file.display()))?;
        if entry.bench == bench {
            found = Some(entry);
        }
    }
    Ok(found)
}

/// Adds a line.
///
/// # Errors
/// A file that can't be written.
pub(crate) fn append(file: &Path, entry: &Entry) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", file.display());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let mut line = serde_json::to_string(entry)?;
    line.push('\n');
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file).with_context(failed)?;
    file.write_all(line.as_bytes()).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bench: &str, commit: &str) -> Entry {
        Entry {
            bench: bench.to_owned(),
            commit: commit.to_owned(),
            date: "2026-11-26T00:00:00Z".to_owned(),
            computer: "2 x Model".to_owned(),
            runs: 3,
            figures: [("d_ms".to_owned(), 15.3)].into(),
        }
    }

    #[test]
    fn last_entry_of_a_bench_is_read_back_and_a_missing_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/history.jsonl");
        assert_eq!(last(&file, "a").unwrap(), None);
        for (bench, commit) in [("a", "1"), ("a", "2"), ("b", "3")] {
            append(&file, &entry(bench, commit)).unwrap();
        }
        assert_eq!(last(&file, "a").unwrap(), Some(entry("a", "2")));
        assert_eq!(last(&file, "c").unwrap(), None);
        let first = fs::read_to_string(&file).unwrap().lines().next().unwrap().to_owned();
        assert_eq!(
            first,
            r#"{"bench":"a","commit":"1","date":"2026-11-26T00:00:00Z","computer":"2 x Model","runs":3,"figures":{"d_ms":15.3}}"#
        );
    }

    #[test]
    fn a_line_that_is_no_entry_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.jsonl");
        append(&file, &entry("a", "1")).unwrap();
        fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"half a li").unwrap();
        let error = last(&file, "a").unwrap_err().to_string();
        assert!(error.ends_with("history.jsonl:2 is no entry: remove the line"), "{error}");
    }
}
