//! IAM policies, as far as provisioners use them: Allow and Deny, wildcards in actions and resources, and string
//! conditions on tags.
//!
//! Source: the IAM user guide, "Policy evaluation logic" and "IAM JSON policy elements".

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::params::wildcard;

/// One permission that a call needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Such as `ec2:TerminateInstances`.
    pub action: String,
    /// ARN, or `*`.
    pub resource: String,
    /// Condition keys and their values. A missing key is missing in the request.
    pub context: BTreeMap<String, Vec<String>>,
}

impl Demand {
    /// A demand without condition keys.
    #[must_use]
    pub fn new(action: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { action: action.into(), resource: resource.into(), context: BTreeMap::new() }
    }

    /// Adds one condition key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.context.insert(key.to_owned(), vec![value.into()]);
        self
    }

    /// Adds `prefix/<tag>` for each tag.
    #[must_use]
    pub fn with_tags<'a>(
        mut self,
        prefix: &str,
        tags: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        let mut keys = Vec::new();
        for (key, value) in tags {
            self.context.insert(format!("{prefix}/{key}"), vec![value.clone()]);
            keys.push(key.clone());
        }
        if prefix == "aws:RequestTag" && !keys.is_empty() {
            self.context.insert("aws:TagKeys".to_owned(), keys);
        }
        self
    }
}

/// A policy document.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Policy {
    /// Its statements.
    #[serde(deserialize_with = "one_or_many")]
    pub statement: Vec<Statement>,
}

/// One statement.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Statement {
    /// Name of the statement.
    #[serde(default)]
    pub sid: String,
    effect: Effect,
    /// Actions, with wildcards.
    #[serde(deserialize_with = "one_or_many")]
    pub action: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    resource: Vec<String>,
    #[serde(default)]
    condition: BTreeMap<String, BTreeMap<String, OneOrMany>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Effect {
    Allow,
    Deny,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<T> {
        One(T),
        Many(Vec<T>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(value) => vec![value],
        Either::Many(values) => values,
    })
}

/// Why a document can't be enforced.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It isn't a policy document.
    #[error("failed to read the policy: {0}")]
    Malformed(#[from] serde_json::Error),
    /// An unsupported condition operator: ignoring it would make the test meaningless.
    #[error("failed to read the policy: statement {sid}: condition operator {operator} is not understood")]
    Operator {
        /// Name of the statement.
        sid: String,
        /// The operator.
        operator: String,
    },
}

const OPERATORS: [&str; 10] = [
    "StringEquals",
    "StringNotEquals",
    "StringLike",
    "StringNotLike",
    "ArnEquals",
    "ArnLike",
    "Bool",
    "Null",
    "ForAllValues:StringEquals",
    "ForAllValues:StringLike",
];

impl Policy {
    /// Reads a document.
    ///
    /// # Errors
    /// If it is malformed, or uses what isn't supported here.
    pub fn parse(json: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_str(json)?;
        for statement in &policy.statement {
            for operator in statement.condition.keys() {
                let plain = operator.strip_suffix("IfExists").unwrap_or(operator);
                if !OPERATORS.contains(&plain) {
                    let (sid, operator) = (statement.sid.clone(), operator.clone());
                    return Err(PolicyError::Operator { sid, operator });
                }
            }
        }
        Ok(policy)
    }

    /// True if a statement allows `demand` and none denies it.
    #[must_use]
    pub fn allows(&self, demand: &Demand) -> bool {
        let mut allowed = false;
        for statement in self.statement.iter().filter(|s| s.applies(demand)) {
            match statement.effect {
                Effect::Deny => return false,
                Effect::Allow => allowed = true,
            }
        }
        allowed
    }
}

impl Statement {
    fn applies(&self, demand: &Demand) -> bool {
        let action = demand.action.to_ascii_lowercase();
        self.action.iter().any(|a| wildcard(&a.to_ascii_lowercase(), &action))
            && self
                .resource
                .iter()
                .any(|r| demand.resource == "*" && r == "*" || wildcard(r, &demand.resource))
            && self.condition.iter().all(|(operator, keys)| {
                keys.iter().all(|(key, wanted)| {
                    let actual = demand
                        .context
                        .iter()
                        .find(|(have, _)| have.eq_ignore_ascii_case(key))
                        .map(|(_, values)| values.as_slice());
                    holds(operator, actual, wanted.values())
                })
            })
    }
}

fn holds(operator: &str, actual: Option<&[String]>, wanted: &[String]) -> bool {
    let (plain, if_exists) =
        operator.strip_suffix("IfExists").map_or((operator, false), |plain| (plain, true));
    let Some(actual) = actual else {
        return match plain {
            "Null" => wanted.iter().any(|w| w == "true"),
            // A missing key satisfies the negated operators and ForAllValues.
            _ => if_exists || plain.contains("Not") || plain.starts_with("ForAllValues:"),
        };
    };
    let equal = |a: &String| wanted.iter().any(|w| w == a);
    let like = |a: &String| wanted.iter().any(|w| wildcard(w, a));
    match plain {
        "StringEquals" | "Bool" => actual.iter().any(equal),
        "StringNotEquals" => !actual.iter().any(equal),
        "StringLike" | "ArnLike" | "ArnEquals" => actual.iter().any(like),
        "StringNotLike" => !actual.iter().any(like),
        "Null" => wanted.iter().any(|w| w == "false"),
        "ForAllValues:StringEquals" => actual.iter().all(equal),
        "ForAllValues:StringLike" => actual.iter().all(like),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::parse(
            r#"{"Version": "2012-10-17", "Statement": [
                {"Sid": "Read", "Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"},
                {"Sid": "End", "Effect": "Allow", "Action": ["ec2:TerminateInstances"],
                 "Resource": "arn:aws:ec2:*:*:instance/*",
                 "Condition": {"StringEquals": {"aws:ResourceTag/croft.dev/cluster": "uid"}}},
                {"Sid": "Never", "Effect": "Deny", "Action": "*", "Resource": "arn:aws:ec2:*:*:instance/i-keep"}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn policy_allows_only_granted_actions() {
        let end = |id: &str| {
            Demand::new("ec2:TerminateInstances", format!("arn:aws:ec2:us-east-1:1:instance/{id}"))
        };
        let tag = "aws:ResourceTag/croft.dev/cluster";
        for (demand, allowed) in [
            (Demand::new("ec2:DescribeSubnets", "*"), true),
            (Demand::new("ec2:CreateFleet", "*"), false),
            (end("i-1"), false),
            (end("i-1").with(tag, "other"), false),
            (end("i-1").with(tag, "uid"), true),
            (end("i-keep").with(tag, "uid"), false),
        ] {
            assert_eq!(policy().allows(&demand), allowed, "{demand:?}");
        }
    }

    #[test]
    fn unsupported_condition_is_an_error() {
        let bad = r#"{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*",
            "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}}"#;
        assert!(Policy::parse(bad).unwrap_err().to_string().contains("IpAddress"));
    }
}
