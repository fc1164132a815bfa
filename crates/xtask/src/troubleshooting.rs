//! The condition types that the troubleshooting page explains: each must appear, or a reader of a status finds no remedy.
//!
//! Reasons aren't checked: the definitions don't say which of them mean success.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, ensure};
use croft_controller::definitions::conditions;

const PAGE: &str = "docs/troubleshooting.md";

/// Fails if the page lacks a condition type.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let types: Vec<&str> = croft_api::condition::CONDITIONS
        .iter()
        .chain(conditions::TYPES)
        .map(|condition| condition.name)
        .collect();
    let missing = missing(&text, &types);
    ensure!(missing.is_empty(), "{PAGE} lacks the condition types {}", missing.join(", "));
    println!("{PAGE} has all {} condition types", types.len());
    Ok(())
}

/// The types that no words in backticks begin with, as `Ready` and `Ready=False` do.
fn missing<'a>(page: &str, types: &[&'a str]) -> Vec<&'a str> {
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let found: BTreeSet<&str> = quoted.filter_map(|words| words.split('=').next()).collect();
    types.iter().copied().filter(|name| !found.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_counts_in_backticks_alone_or_with_its_status() {
        let page = "| `Ready=False`, `NoWebhook` |\nthe condition `Consolidatable`\nExpired, `NotDrifted`\n";
        assert_eq!(missing(page, &["Ready", "Consolidatable", "Expired", "Drifted"]), ["Expired", "Drifted"]);
    }
}
