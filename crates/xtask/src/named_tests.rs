//! The tests that the threat model names: each must exist, or a row claims what nothing shows.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};

const PAGE: &str = "docs/threat-model.md";

/// Fails if a test that the page names as `file::name` doesn't exist.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let named = named(&text);
    ensure!(!named.is_empty(), "{PAGE} names no test");
    let missing: Vec<String> = named
        .iter()
        .filter(|(file, name)| {
            !fs::read_to_string(root.join(file)).is_ok_and(|source| has_test(&source, name))
        })
        .map(|(file, name)| format!("{file}::{name}"))
        .collect();
    ensure!(missing.is_empty(), "{PAGE} names tests that don't exist: {}", missing.join(", "));
    println!("{PAGE} names {} tests, and all of them exist", named.len());
    Ok(())
}

/// Words in backticks such as `tests/tests/x.rs::name`.
fn named(text: &str) -> Vec<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter_map(|word| word.split_once("::")).filter(|(file, _)| file.ends_with(".rs")).collect()
}

/// True if `source` has a test function of this name.
fn has_test(source: &str, name: &str) -> bool {
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if (line == "#[test]" || line.starts_with("#[tokio::test"))
            && let Some(function) = lines.by_ref().find(|line| line.contains("fn "))
            && function.contains(&format!("fn {name}("))
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_only_as_a_test_function() {
        let source = "fn helper() {}\n#[test]\nfn one() {}\n#[tokio::test(flavor = \"x\")]\n#[ignore]\nasync fn two() {}\n";
        assert!(has_test(source, "one") && has_test(source, "two"));
        assert!(!has_test(source, "helper") && !has_test(source, "on"));
    }

    #[test]
    fn names_are_read_from_between_backticks() {
        let text = "| a | `x` | `tests/a.rs::one` | `b::c` |\n| `tests/b/c.rs::two` |";
        assert_eq!(named(text), [("tests/a.rs", "one"), ("tests/b/c.rs", "two")]);
    }
}
