//! The Pod Security labels that the controller writes on namespaces of tenants, and what it may not do with them.
//!
//! A Tenant declares the least strict level of a mode. The controller raises a label that is below, and records what the
//! label was, so that the label can go back. What people set otherwise is never lowered:
//!
//! | the label that people set | what the controller does |
//! |---|---|
//! | none, or less strict than declared | writes the declared level, with a record of the label |
//! | as strict, or stricter | nothing |
//! | a record, and a level that isn't the recorded one | the level is people's: the record goes, and the lines above hold |
//! | a record, and no declared level any more | writes the label that was, and removes the record |
//!
//! `pod_security.cel` allows no other write.

use std::collections::BTreeMap;

use crate::definitions::POD_SECURITY_RECORD;

/// The modes of Pod Security, each with its label.
pub const MODES: [(&str, &str); 3] = [
    ("enforce", "pod-security.kubernetes.io/enforce"),
    ("audit", "pod-security.kubernetes.io/audit"),
    ("warn", "pod-security.kubernetes.io/warn"),
];
/// In a record: there was no label.
pub(super) const NO_LABEL: &str = "-";

/// The key of the annotation with the record of a mode.
#[must_use]
pub fn record_key(mode: &str) -> String {
    format!("{POD_SECURITY_RECORD}{mode}")
}

/// Labels or annotations that are to be written; `None` for a key that is to be removed.
pub type Changes = BTreeMap<String, Option<String>>;

/// The label's place in the order of strictness. Kubernetes treats an unknown level as the strictest.
fn rank(level: Option<&str>) -> u8 {
    match level {
        None | Some("privileged") => 0,
        Some("baseline") => 1,
        Some(_) => 2,
    }
}

/// The changes of a namespace's labels and annotations. `declared` are the levels in the order of [`MODES`].
///
/// ```
/// use croft_policy::policies::pod_security::changes;
///
/// let none = |_: &str| None;
/// let (labels, annotations) = changes([Some("baseline"), None, None], none, none);
/// assert_eq!(labels["pod-security.kubernetes.io/enforce"].as_deref(), Some("baseline"));
/// assert_eq!(annotations["policy.croft.dev/pod-security-enforce"].as_deref(), Some("baseline:-"));
/// ```
#[must_use]
pub fn changes<'n>(
    declared: [Option<&str>; 3],
    label: impl Fn(&str) -> Option<&'n str>,
    annotation: impl Fn(&str) -> Option<&'n str>,
) -> (Changes, Changes) {
    let (mut labels, mut annotations) = (Changes::new(), Changes::new());
    for ((mode, name), declared) in MODES.into_iter().zip(declared) {
        let (now, key) = (label(name), record_key(mode));
        let recorded = annotation(&key);
        let own = recorded.and_then(|record| record.split_once(':')).filter(|(level, _)| now == Some(*level));
        let before = own.map_or(now, |(_, before)| (before != NO_LABEL).then_some(before));
        let raised = declared.filter(|declared| rank(Some(declared)) > rank(before));
        let record = raised.map(|level| format!("{level}:{}", before.unwrap_or(NO_LABEL)));
        let wanted = raised.or(before);
        if wanted != now {
            labels.insert(name.to_owned(), wanted.map(str::to_owned));
        }
        if record.as_deref() != recorded {
            annotations.insert(key, record);
        }
    }
    (labels, annotations)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Label and record of `enforce` after the changes for a declared level.
    fn after(
        declared: Option<&str>,
        label: Option<&str>,
        record: Option<&str>,
    ) -> (Option<String>, Option<String>) {
        let (labels, annotations) = changes(
            [declared, None, None],
            |name| label.filter(|_| name.ends_with("enforce")),
            |name| record.filter(|_| name.ends_with("enforce")),
        );
        assert!(labels.len() <= 1 && annotations.len() <= 1, "{labels:?} {annotations:?}");
        (
            labels.into_values().next().unwrap_or_else(|| label.map(str::to_owned)),
            annotations.into_values().next().unwrap_or_else(|| record.map(str::to_owned)),
        )
    }

    #[test]
    fn levels_are_raised_and_go_back() {
        let text = |label: &str, record: &str| (Some(label.to_owned()), Some(record.to_owned()));
        let plain = |label: Option<&str>| (label.map(str::to_owned), None);
        let cases = [
            (Some("baseline"), None, None, text("baseline", "baseline:-")),
            (Some("restricted"), Some("baseline"), None, text("restricted", "restricted:baseline")),
            // As strict, stricter, unknown.
            (Some("baseline"), Some("baseline"), None, plain(Some("baseline"))),
            (Some("baseline"), Some("restricted"), None, plain(Some("restricted"))),
            (Some("baseline"), Some("future"), None, plain(Some("future"))),
            (Some("privileged"), None, None, plain(None)),
            // The Tenant is edited.
            (Some("restricted"), Some("baseline"), Some("baseline:-"), text("restricted", "restricted:-")),
            (Some("baseline"), Some("restricted"), Some("restricted:-"), text("baseline", "baseline:-")),
            (Some("baseline"), Some("restricted"), Some("restricted:baseline"), plain(Some("baseline"))),
            (None, Some("baseline"), Some("baseline:-"), plain(None)),
            (None, Some("restricted"), Some("restricted:baseline"), plain(Some("baseline"))),
            // People changed the label meanwhile.
            (Some("baseline"), Some("restricted"), Some("baseline:-"), plain(Some("restricted"))),
            (
                Some("baseline"),
                Some("privileged"),
                Some("baseline:-"),
                text("baseline", "baseline:privileged"),
            ),
            (Some("baseline"), None, Some("baseline:-"), text("baseline", "baseline:-")),
            (None, Some("restricted"), Some("baseline:-"), plain(Some("restricted"))),
            (None, None, None, plain(None)),
        ];
        for (declared, label, record, expected) in cases {
            assert_eq!(after(declared, label, record), expected, "{declared:?} {label:?} {record:?}");
            // Once is enough.
            let (label, record) = &expected;
            assert_eq!(after(declared, label.as_deref(), record.as_deref()), expected, "again: {declared:?}");
        }
    }
}
