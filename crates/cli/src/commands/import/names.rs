//! Names of Croft's objects: valid, and never one for two, whatever their names in the input have in common.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::hash::hash;

/// Digits of the hash that tells shortened names apart.
const DIGITS: usize = 8;

/// `text` as a valid name: lower case letters, digits and `-`, at most `most` characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let lower = text.to_lowercase();
    let mapped: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let short: String = mapped.trim_matches('-').chars().take(most).collect();
    let short = short.trim_end_matches('-');
    if short.is_empty() { "unnamed".to_owned() } else { short.to_owned() }
}

/// A name for each of `wanted`, in their order. Each is what is wanted, and what tells it from another that wants the same.
///
/// A text that is a valid name keeps it, and others are shortened. If several are shortened to one name, each gets a hash of what it
/// is, so that its name depends neither on the order nor on the number of the others.
pub(super) fn names(wanted: &[(String, String)], most: usize) -> Vec<String> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let short: Vec<String> = wanted.iter().map(|(text, _)| shortened(text, most)).collect();
    let kept: Vec<Option<String>> = wanted
        .iter()
        .zip(&short)
        .map(|((text, _), short)| (text == short && taken.insert(short.clone())).then(|| short.clone()))
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &short {
        *counts.entry(name).or_default() += 1;
    }
    let is_alone = |name: &String| counts.get(name.as_str()) == Some(&1);
    let mut names = Vec::new();
    for (((text, identity), short), kept) in wanted.iter().zip(&short).zip(kept) {
        let plain = kept.or_else(|| is_alone(short).then(|| short.clone()));
        names.push(plain.unwrap_or_else(|| {
            let stem = shortened(short, most.saturating_sub(DIGITS + 1));
            // Hashes of other digits in the rare case that another object has this name.
            let mut candidates = (DIGITS..).map(|digits| {
                let hash: String = hash(&[text, identity], digits).chars().skip(digits - DIGITS).collect();
                format!("{stem}-{hash}")
            });
            candidates.find(|name| !taken.contains(name)).unwrap_or_default()
        }));
        taken.extend(names.last().cloned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> Vec<String> {
        let wanted: Vec<_> = texts.iter().map(|text| ((*text).to_owned(), "NodePool".to_owned())).collect();
        names(&wanted, 40)
    }

    #[test]
    fn texts_that_are_shortened_to_one_name_get_different_names() {
        let long = "a".repeat(40);
        let (one, two) = (format!("{long}-one"), format!("{long}-two"));
        for texts in [["team_a", "team-a"], ["Team-A", "team_a"], [&one, &two], [&long, &one]] {
            let names = named(&texts);
            assert_ne!(names[0], names[1], "{texts:?}");
            assert!(names.iter().all(|name| name.len() <= 40 && shortened(name, 40) == *name), "{names:?}");
        }
        assert_eq!(named(&["team-a", "team_a"])[0], "team-a", "a valid name is kept");
        assert_eq!(named(&["Pool_B"]), ["pool-b"], "a text that is alone needs no hash");
        assert_eq!(named(&["日本"]), ["unnamed"]);
    }

    #[test]
    fn a_name_depends_on_neither_order_nor_number_of_the_others() {
        let two = named(&["team_a", "team.a"]);
        let three = named(&["team-a", "team.a", "team_a"]);
        assert_eq!([&two[0], &two[1]], [&three[2], &three[1]]);
    }

    #[test]
    fn two_objects_of_one_text_have_two_names() {
        let wanted = ["NodePool", "Provisioner"].map(|kind| ("a".to_owned(), kind.to_owned()));
        let names = names(&wanted, 40);
        assert_eq!(names[0], "a");
        assert!(names[1].starts_with("a-"), "{names:?}");
    }
}
