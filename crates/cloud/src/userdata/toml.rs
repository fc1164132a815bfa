//! The part of TOML that merging settings needs: tables by path, and values as written.
//!
//! Values are not parsed, so that settings of later Bottlerocket versions pass through unchanged.

use std::{collections::BTreeMap, fmt::Write as _};

use super::quoting::quoted;

/// A table's name, in parts.
pub(super) type Path = Vec<String>;

/// Tables by path, each with values by key.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeMap<Path, BTreeMap<String, String>>);

/// A line that can't be merged: its number, from 1, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) line: usize,
    pub(super) problem: &'static str,
}

impl Tables {
    /// The table `path`, created if missing.
    pub(super) fn table(&mut self, path: &[&str]) -> &mut BTreeMap<String, String> {
        self.0.entry(path.iter().map(|part| (*part).to_owned()).collect()).or_default()
    }

    /// True if `path` is a value of the parent table, so that it can't be a table as well.
    pub(super) fn is_value(&self, path: &[&str]) -> bool {
        let Some((key, above)) = path.split_last() else { return false };
        self.0.iter().any(|(table, values)| table.iter().eq(above.iter()) && values.contains_key(*key))
    }

    /// Parses a document.
    pub(super) fn read(text: &str) -> Result<Self, Mistake> {
        let mut tables = Self::default();
        let mut table = Path::new();
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let mistake = |problem| Mistake { line: index + 1, problem };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("[[") {
                return Err(mistake("is a list of tables, which no setting of a node is"));
            }
            if let Some(rest) = line.strip_prefix('[') {
                let (path, rest) = path(rest).ok_or_else(|| mistake("names no table"))?;
                let rest = rest.strip_prefix(']').map(str::trim_start);
                if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#')) {
                    return Err(mistake("names no table"));
                }
                table = path;
                tables.0.entry(table.clone()).or_default();
                continue;
            }
            let neither = "is neither a table nor `key = value`";
            let (mut key, rest) = path(line).ok_or_else(|| mistake(neither))?;
            let mut value = rest.strip_prefix('=').ok_or_else(|| mistake(neither))?.trim().to_owned();
            while is_open(&value) {
                let (_, more) = lines.next().ok_or_else(|| mistake("begins a value that doesn't end"))?;
                value.push('\n');
                value.push_str(more);
            }
            if value.is_empty() {
                return Err(mistake(neither));
            }
            // `a.b = c` in table t is `b = c` in table t.a.
            let last = key.pop().unwrap_or_default();
            let place: Path = table.iter().cloned().chain(key).collect();
            if tables.0.entry(place).or_default().insert(last, value).is_some() {
                return Err(mistake("sets a key for the second time"));
            }
        }
        Ok(tables)
    }

    /// Formats the document. Equal tables give equal text.
    pub(super) fn write(&self) -> String {
        let mut text = String::new();
        for (path, values) in self.0.iter().filter(|(_, values)| !values.is_empty()) {
            if !path.is_empty() {
                let name: Vec<String> = path.iter().map(|part| key(part, false)).collect();
                let _ = writeln!(text, "[{}]", name.join("."));
            }
            // Names of labels, taints and resources mostly need quotes.
            let names = path.len() > 2;
            for (name, value) in values {
                let _ = writeln!(text, "{} = {value}", key(name, names && !is_setting(path)));
            }
            text.push('\n');
        }
        text
    }
}

/// True for tables whose keys are settings rather than users' names.
fn is_setting(path: &[String]) -> bool {
    path.get(1).is_none_or(|group| group != "kubernetes")
}

fn key(text: &str, always_quoted: bool) -> String {
    let bare = !text.is_empty() && text.chars().all(is_bare);
    if bare && !always_quoted { text.to_owned() } else { quoted(text) }
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// The dotted name at the beginning of `text`, and the rest.
fn path(text: &str) -> Option<(Path, &str)> {
    let mut parts = Path::new();
    let mut rest = text.trim_start();
    loop {
        let (part, behind) = match rest.chars().next()? {
            '"' => {
                let end = end_of_string(rest, '"')?;
                (serde_json::from_str(rest.get(..end)?).ok()?, rest.get(end..)?)
            }
            '\'' => {
                let end = end_of_string(rest, '\'')?;
                (rest.get(1..end - 1)?.to_owned(), rest.get(end..)?)
            }
            _ => {
                let end = rest.find(|c| !is_bare(c)).unwrap_or(rest.len());
                (rest.get(..end).filter(|part| !part.is_empty())?.to_owned(), rest.get(end..)?)
            }
        };
        parts.push(part);
        rest = behind.trim_start();
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None => return Some((parts, rest)),
        }
    }
}

/// The end of the string that begins `text`, after its closing quote.
fn end_of_string(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            c if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}

/// True if a value continues in the next line: inside brackets, or in a multi-line string.
fn is_open(value: &str) -> bool {
    let mut depth = 0_i64;
    let mut rest = value;
    while let Some(c) = rest.chars().next() {
        let long = ["\"\"\"", "'''"].into_iter().find(|quotes| rest.starts_with(quotes));
        if let Some(quotes) = long {
            let inside = rest.get(3..).unwrap_or_default();
            match inside.find(quotes) {
                Some(end) => rest = inside.get(end + 3..).unwrap_or_default(),
                None => return true,
            }
            continue;
        }
        let width = match c {
            '"' | '\'' => match end_of_string(rest, c) {
                Some(end) => end,
                // A plain string can't continue: its reader reports it.
                None => return false,
            },
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '[' | '{' => {
                depth += 1;
                1
            }
            ']' | '}' => {
                depth -= 1;
                1
            }
            _ => c.len_utf8(),
        };
        rest = rest.get(width..).unwrap_or_default();
    }
    depth > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        Tables::read(text).unwrap().write()
    }

    #[test]
    fn dotted_keys_are_tables() {
        let text = "settings.host-containers.admin.enabled = true\n[settings] # mine\nkernel.sysctl.\"net.core.rmem_max\" = \"1\"\n";
        assert_eq!(
            again(text),
            "[settings.host-containers.admin]\nenabled = true\n\n[settings.kernel.sysctl]\n\"net.core.rmem_max\" = \"1\"\n\n"
        );
    }

    #[test]
    fn toml_values_pass_through_unchanged() {
        let text = "[a]\nlist = [ # these\n  \"x]\",\n  'y\"',\n]\nlong = \"\"\"\n[b]\n\"\"\"\ninline = { c = 1 } # here\n";
        let tables = Tables::read(text).unwrap();
        assert_eq!(
            tables.write(),
            "[a]\ninline = { c = 1 } # here\nlist = [ # these\n  \"x]\",\n  'y\"',\n]\nlong = \"\"\"\n[b]\n\"\"\"\n\n"
        );
        assert_eq!(again(&tables.write()), tables.write());
        assert!(tables.is_value(&["a", "inline"]) && !tables.is_value(&["a", "b"]));
    }

    #[test]
    fn quoted_key_parts_keep_their_dots() {
        assert_eq!(again("[a.'b.c'.\"d\\\"e\"]\nf = 1\n"), "[a.\"b.c\".\"d\\\"e\"]\nf = 1\n\n");
    }

    #[test]
    fn toml_errors_name_their_line() {
        for (text, line, words) in [
            ("[a]\nb", 2, "neither a table nor"),
            ("[a", 1, "names no table"),
            ("[[a]]\nb = 1", 1, "list of tables"),
            ("a = [\n1,\n", 1, "doesn't end"),
            ("a = 1\n[b]\n[c]\nd = 1\nd = 2", 5, "second time"),
            ("a =", 1, "neither a table nor"),
        ] {
            let mistake = Tables::read(text).unwrap_err();
            assert!(mistake.line == line && mistake.problem.contains(words), "{text:?}: {mistake:?}");
        }
    }
}
