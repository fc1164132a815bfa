//! The interruption queue: it is there, of this cluster, and rules put every kind of announcement on it.

use croft_cloud_aws::{EventRule, QueueFacts, Read};
use serde_json::Value;

use super::super::report::{Finding, fail, warn};
use crate::table::{counted, shortened};

/// The kinds of events that the controller acts on, by `detail-type`.
const EXPECTED: [&str; 4] = [
    "EC2 Spot Instance Interruption Warning",
    "EC2 Instance Rebalance Recommendation",
    "EC2 Instance State-change Notification",
    "AWS Health Event",
];
/// More waiting messages than this were not read for a while.
const MOST_WAITING: u64 = 1_000;

/// A queue, its rules, and the other clusters of the account.
pub(super) struct Found<'a> {
    pub(super) name: &'a str,
    pub(super) region: &'a str,
    pub(super) queue: &'a Read<QueueFacts>,
    pub(super) rules: &'a Result<Vec<EventRule>, String>,
    /// The names of all clusters at EKS in the region, as far as they are known.
    pub(super) clusters: &'a [String],
    /// The name of this cluster.
    pub(super) cluster: Option<&'a str>,
}

/// No queue is set.
pub(super) fn unset() -> Finding {
    warn(
        "no interruption queue is set: spot instances end without a drain",
        "deploy manifests/aws/croft.yaml, and set controller.settings.interruptionQueue to its output (docs/aws.md#the-stack)",
    )
}

/// The queue exists, is this cluster's, and gets every kind of event.
pub(super) fn check(found: &Found<'_>) -> Finding {
    let Found { name, region, queue, rules, clusters, cluster } = found;
    let Some(queue) = queue.as_ref()? else {
        return fail(
            format!("there is no queue {name} in {region}, or the credentials may not see it"),
            "set controller.settings.interruptionQueue to the output InterruptionQueueName of the stack (docs/aws.md#the-stack)",
        );
    };
    let is_foreign = |other: &&String| Some(other.as_str()) != *cluster && *name == format!("croft-{other}");
    if let Some(other) = clusters.iter().find(is_foreign) {
        return warn(
            format!(
                "the queue {name} is that of the cluster {other}, by its name: two controllers take each other's messages"
            ),
            "give each cluster a queue of its own: deploy the stack once for each (docs/aws.md#several-clusters-in-one-account)",
        );
    }
    if let Some(waiting) = queue.waiting.filter(|waiting| *waiting > MOST_WAITING) {
        return warn(
            format!("{waiting} messages wait on {name}: no controller reads it"),
            "see that the controller leads, and that its role may receive: sqs:ReceiveMessage, sqs:DeleteMessage",
        );
    }
    let rules = match rules {
        Ok(rules) => rules,
        Err(why) => return Ok(format!("{name} is there; its rules aren't known: {why}")),
    };
    let missing: Vec<&str> = EXPECTED
        .into_iter()
        .filter(|kind| !rules.iter().any(|rule| rule.enabled && announces(&rule.pattern, kind)))
        .collect();
    if missing.is_empty() {
        return Ok(format!("{name} gets every announcement, by {}", counted(rules.len(), "rule")));
    }
    warn(
        format!("no enabled rule puts these events on {name}: {}", shortened(&missing, EXPECTED.len())),
        "deploy manifests/aws/croft.yaml, whose rules do (docs/aws.md#the-stack)",
    )
}

/// True if a pattern takes events with this `detail-type`. Patterns by prefix and the like count as taking them.
fn announces(pattern: &str, kind: &str) -> bool {
    let pattern: Value = serde_json::from_str(pattern).unwrap_or_default();
    let Some(fields) = pattern.as_object() else { return false };
    match fields.get("detail-type").and_then(Value::as_array) {
        Some(kinds) => kinds.iter().any(|one| one.is_object() || one.as_str() == Some(kind)),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::check::report::{Problem, Status};

    fn rules(kinds: &[(&str, bool)]) -> Vec<EventRule> {
        let rule = |(kind, enabled): &(&str, bool)| EventRule {
            name: (*kind).to_owned(),
            enabled: *enabled,
            pattern: json!({"source": ["aws.ec2"], "detail-type": [kind]}).to_string(),
        };
        kinds.iter().map(rule).collect()
    }

    fn seen(queue: Option<QueueFacts>, rules: Vec<EventRule>, clusters: &[&str]) -> Finding {
        let clusters: Vec<String> = clusters.iter().map(|name| (*name).to_owned()).collect();
        check(&Found {
            name: "croft-prod",
            region: "eu-west-1",
            queue: &Ok(queue),
            rules: &Ok(rules),
            clusters: &clusters,
            cluster: Some("prod"),
        })
    }

    fn all() -> Vec<EventRule> {
        rules(&EXPECTED.map(|kind| (kind, true)))
    }

    #[test]
    fn queue_with_every_rule_is_well() {
        let queue = QueueFacts { waiting: Some(3), ..QueueFacts::default() };
        let found = seen(Some(queue), all(), &["prod", "test"]);
        assert_eq!(found, Ok("croft-prod gets every announcement, by 4 rules".to_owned()));
    }

    #[test]
    fn absent_queue_fails() {
        assert!(matches!(seen(None, all(), &[]), Err(Problem { status: Status::Fail, .. })));
    }

    #[test]
    fn missing_and_disabled_rules_are_named() {
        let some = [("EC2 Spot Instance Interruption Warning", false), ("AWS Health Event", true)];
        let found = seen(Some(QueueFacts::default()), rules(&some), &[]);
        let Err(failed @ Problem { status: Status::Warn, .. }) = found else { panic!("{found:?}") };
        assert!(
            failed.what.contains("Spot Instance Interruption") && !failed.what.contains("Health"),
            "{failed:?}"
        );
    }

    #[test]
    fn queue_of_another_cluster_and_unread_messages_are_a_warning() {
        let found = check(&Found {
            name: "croft-test",
            region: "r",
            queue: &Ok(Some(QueueFacts::default())),
            rules: &Ok(all()),
            clusters: &["prod".to_owned(), "test".to_owned()],
            cluster: Some("prod"),
        });
        assert!(
            matches!(&found, Err(f) if f.status == Status::Warn && f.what.contains("that of the cluster test")),
            "{found:?}"
        );
        let queue = QueueFacts { waiting: Some(5_000), ..QueueFacts::default() };
        let found = seen(Some(queue), all(), &[]);
        assert!(
            matches!(&found, Err(f) if f.status == Status::Warn && f.what.starts_with("5000 messages")),
            "{found:?}"
        );
    }
}
