//! The cost of each ValidatingAdmissionPolicy: pod creations in namespaces of one tenant, each with one policy bound.

use std::fmt::{self, Write as _};

use anyhow::Context as _;
use croft_policy::policies;
use serde_json::Value;

use crate::{
    cluster::{ALONE, BY_CROFT, Cluster},
    latency,
};

/// Policies that are bound to one namespace.
#[derive(Debug)]
struct Group {
    /// Of its figure.
    name: String,
    policies: Vec<String>,
}

/// Time that policies add to the creation of a pod.
#[derive(Debug)]
pub(crate) struct Costs {
    /// In the webhook's namespace without any policy, in milliseconds.
    none: f64,
    /// Milliseconds that each group adds.
    added: Vec<(Group, f64)>,
    pub(crate) errors: usize,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "each policy alone, beside {:.3} ms without one:\n{:<32} added ms", self.none, "policy")?;
        for (Group { name, policies }, added) in &self.added {
            let name = match policies.as_slice() {
                [policy] => policy.clone(),
                many => format!("{name}: {} without a rule for pods", many.len()),
            };
            write!(f, "\n{name:<32} {added:>8.3}")?;
        }
        Ok(())
    }
}

impl Costs {
    /// The figures, for the line for programs.
    pub(crate) fn figures(&self) -> anyhow::Result<String> {
        let mut line = String::new();
        for (Group { name, .. }, added) in &self.added {
            write!(line, " alone_{name}_ms={added:.3}")?;
        }
        Ok(line)
    }
}

/// Measures each policy that a pod's creation is evaluated by, and the others together. The generated policies are
/// installed before and after.
pub(crate) async fn measure(cluster: &Cluster, pods: usize) -> anyhow::Result<Costs> {
    let groups = groups();
    anyhow::ensure!(groups.len() <= ALONE.len(), "{} policies need a namespace each", groups.len());
    let places: Vec<(&str, &[String])> =
        ALONE.iter().copied().zip(groups.iter().map(|group| group.policies.as_slice())).collect();
    cluster.bind_apart(&places).await?;
    let namespaces: Vec<&str> = [BY_CROFT].into_iter().chain(places.iter().map(|(name, _)| *name)).collect();
    let measured = latency::measure(cluster, &namespaces, pods).await?;
    cluster.bind_everywhere(&places).await?;
    let (none, medians) = measured.medians.split_first().context("a kind wasn't measured")?;
    let added = groups.into_iter().zip(medians.iter().map(|median| median - none)).collect();
    Ok(Costs { none: *none, added, errors: measured.errors })
}

/// Each policy with a rule for pods' creation, and all others.
fn groups() -> Vec<Group> {
    let text =
        |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (mut groups, mut others) = (Vec::new(), Vec::new());
    for document in policies::documents("croft-system") {
        if text(&document, "/kind").as_deref() != Some("ValidatingAdmissionPolicy") {
            continue;
        }
        let Some(policy) = text(&document, "/metadata/name") else { continue };
        if has_rule_for_new_pods(&document) {
            let name = policy.trim_start_matches("croft-").replace('-', "_");
            groups.push(Group { name, policies: vec![policy] });
        } else {
            others.push(policy);
        }
    }
    groups.push(Group { name: "others".to_owned(), policies: others });
    groups
}

fn has_rule_for_new_pods(policy: &Value) -> bool {
    let rules = policy.pointer("/spec/matchConstraints/resourceRules").and_then(Value::as_array);
    let has = |rule: &Value, field: &str, value: &str| {
        let values = rule.get(field).and_then(Value::as_array);
        values.is_some_and(|values| values.iter().any(|v| v == value || v == "*"))
    };
    rules.is_some_and(|rules| {
        rules.iter().any(|rule| has(rule, "resources", "pods") && has(rule, "operations", "CREATE"))
    })
}
