//! The findings in an EC2NodeClass's status: the last good findings, until what is missing is confirmed missing.
//!
//! Nodes drift when the findings change, so a failed or incomplete lookup must not look like a change. A new
//! finding counts at once. A missing finding counts once it has been missing for [`ABSENT_FOR`], or since the
//! class's own terms were edited. A lookup without any finding means that the class can't launch, which its
//! conditions say; it never replaces nodes.

use std::time::Duration;

use croft_api::{EC2NodeClass, EC2NodeClassStatus};
use croft_cloud::ClassFindings;

/// By then a missing finding was looked up several times: answers are cached for 5 minutes at most, and a class is
/// resolved every 5 minutes at least.
pub const ABSENT_FOR: Duration = Duration::from_secs(900);

/// The lists that drift compares.
fn lists(status: &EC2NodeClassStatus) -> [Vec<&str>; 3] {
    [
        status.security_groups.iter().map(String::as_str).collect(),
        status.subnets.iter().map(|subnet| subnet.id.as_str()).collect(),
        status.amis.iter().map(|ami| ami.id.as_str()).collect(),
    ]
}

/// The findings as a status.
fn found(findings: &ClassFindings) -> EC2NodeClassStatus {
    EC2NodeClassStatus {
        subnets: findings.subnets.clone(),
        security_groups: findings.security_groups.clone(),
        amis: findings.amis.clone(),
        conditions: Vec::new(),
    }
}

/// The entries that `new` lacks of `old`, if it has no other entries instead.
fn missing<'a>(old: &[&'a str], new: &[&str]) -> Vec<&'a str> {
    let replaced = new.iter().any(|id| !old.contains(id));
    old.iter().filter(|id| !replaced && !new.contains(*id)).copied().collect()
}

/// True if the class was edited since its findings were written.
fn is_edited(class: &EC2NodeClass) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|c| c.observed_generation != class.metadata.generation)
}

/// The earlier findings that are missing now.
#[must_use]
pub fn lost(class: &EC2NodeClass, findings: &ClassFindings) -> Vec<String> {
    let Some(old) = &class.status else { return Vec::new() };
    let new = found(findings);
    let lists = lists(old).into_iter().zip(lists(&new));
    lists.flat_map(|(old, new)| missing(&old, &new)).map(str::to_owned).collect()
}

/// The findings for the class's status: those of now, or the last good ones where some are missing and that isn't
/// `confirmed`.
#[must_use]
pub fn believed(class: &EC2NodeClass, findings: &ClassFindings, confirmed: bool) -> EC2NodeClassStatus {
    let old = class.status.clone().unwrap_or_default();
    let mut new = found(findings);
    let confirmed = confirmed || is_edited(class);
    let [groups, subnets, amis] = {
        let (before, now) = (lists(&old), lists(&new));
        let mut held = [false; 3];
        for (held, (before, now)) in held.iter_mut().zip(before.iter().zip(&now)) {
            *held = now.is_empty() || !confirmed && !missing(before, now).is_empty();
        }
        held
    };
    if groups {
        new.security_groups.clone_from(&old.security_groups);
    }
    if subnets {
        new.subnets.clone_from(&old.subnets);
    }
    if amis {
        new.amis.clone_from(&old.amis);
    }
    new.conditions = old.conditions;
    new
}

#[cfg(test)]
mod tests {
    use croft_api::nodeclass::{AmiStatus, SubnetStatus};
    use serde_json::json;

    use super::*;

    fn class(groups: &[&str], generation: i64) -> EC2NodeClass {
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c", "generation": generation},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
                "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]},
            "status": {"securityGroups": groups, "subnets": [{"id": "s-1", "zone": "a"}],
                "amis": [{"id": "ami-1", "arch": "amd64"}], "conditions": [{"type": "Ready", "status": "True",
                    "reason": "Ready", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-11-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    fn findings(groups: &[&str]) -> ClassFindings {
        ClassFindings {
            security_groups: groups.iter().map(|id| (*id).to_owned()).collect(),
            subnets: vec![SubnetStatus { id: "s-1".to_owned(), zone: "a".to_owned() }],
            amis: vec![AmiStatus { id: "ami-1".to_owned(), arch: "amd64".to_owned(), device: None }],
            ..ClassFindings::default()
        }
    }

    #[test]
    fn what_is_missing_holds_the_last_good_findings() {
        // Before, found, missing; then what counts: at once, after a while, after an edit.
        type Ids = &'static [&'static str];
        let cases: [(Ids, Ids, Ids, [Ids; 3]); 7] = [
            (&["a"], &["a"], &[], [&["a"], &["a"], &["a"]]),
            (&["a"], &[], &["a"], [&["a"], &["a"], &["a"]]),
            (&["a", "b"], &["b"], &["a"], [&["a", "b"], &["b"], &["b"]]),
            (&["a"], &["b"], &[], [&["b"], &["b"], &["b"]]),
            (&["a"], &["a", "b"], &[], [&["a", "b"], &["a", "b"], &["a", "b"]]),
            (&["a", "b"], &["b", "c"], &[], [&["b", "c"], &["b", "c"], &["b", "c"]]),
            (&[], &["a"], &[], [&["a"], &["a"], &["a"]]),
        ];
        for (before, now, missing, believes) in cases {
            let case = format!("{before:?}, then {now:?}");
            let now = findings(now);
            assert_eq!(lost(&class(before, 1), &now), missing, "{case}");
            let ways = [(1, false), (1, true), (2, false)];
            for ((generation, confirmed), expected) in ways.into_iter().zip(believes) {
                let status = believed(&class(before, generation), &now, confirmed);
                assert_eq!(status.security_groups, expected, "{case}, generation {generation}, {confirmed}");
                assert_eq!((status.subnets.len(), status.amis.len()), (1, 1));
            }
        }
    }

    #[test]
    fn a_look_up_that_finds_nothing_keeps_every_list() {
        let status = believed(&class(&["a"], 1), &ClassFindings::default(), true);
        assert_eq!((status.security_groups.len(), status.subnets.len(), status.amis.len()), (1, 1, 1));
    }
}
