//! Objects of other controllers' kinds, such as Rollouts and JobSets: what admission does to pods of their templates.
//!
//! How many pods there will be, and what their controller adds to a template, isn't known, so the scheduler plans none of them.

use std::collections::BTreeMap;

use croft_manifest::{CustomWorkload, Input};
use croft_policy::NamespaceTenancy;
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;

use crate::{
    admission::{Admission, Outcome, Verdict},
    planned::{Planned, entry, to_json},
};

const NOTE: &str =
    "its controller creates the pods; each is admitted when it is created, and none is simulated here";
const CLUSTER_SCOPED: &str = "pods are created in the namespaces of the objects that name it; each is admitted when it is created, and none is simulated here";

/// The outcome of admission for a pod of each template; for an object without one, of a pod that asks for nothing.
pub(crate) fn plan(input: &Input, admission: &Admission) -> Vec<Planned> {
    let mut planned = Vec::new();
    for workload in &input.custom_workloads {
        let note = if workload.namespace.is_some() { NOTE } else { CLUSTER_SCOPED };
        let mut add = |template: Option<&String>, one: Planned| {
            planned.push(Planned {
                api_version: Some(workload.api_version.clone()),
                template: template.cloned(),
                note: Some(note.into()),
                ..one
            });
        };
        if workload.templates.is_empty() || workload.namespace.is_none() {
            add(None, without_template(workload, input, admission));
            continue;
        }
        for template in &workload.templates {
            match &template.template {
                Ok(found) => {
                    let pod = pod_of(workload, found.clone());
                    let (before, verdict) = admission.create(&pod, input);
                    add(Some(&template.path), entry(&workload.kind, &pod, None, &to_json(&before), verdict));
                }
                Err(refusal) => {
                    let mut one = without_template(workload, input, admission);
                    one.warnings.push(format!("{refusal}; what admission does with its pods isn't known"));
                    add(Some(&template.path), one);
                }
            }
        }
    }
    planned
}

/// Sentences about the objects whose pods aren't simulated: one for each kind, and one for each template of which pods are denied.
#[must_use]
pub fn warnings(input: &Input, admission: &Admission) -> Vec<String> {
    let mut kinds: BTreeMap<(&str, &str), (&CustomWorkload, usize)> = BTreeMap::new();
    for workload in &input.custom_workloads {
        let kind = (workload.api_version.as_str(), workload.kind.as_str());
        kinds.entry(kind).and_modify(|(_, others)| *others += 1).or_insert((workload, 0));
    }
    let mut warnings: Vec<String> = kinds
        .into_values()
        .map(|(first, others)| {
            let more = if others == 0 { String::new() } else { format!(" and {others} more of its kind") };
            let note = if first.namespace.is_some() { NOTE } else { CLUSTER_SCOPED };
            format!("{}: {}{more}: {note}", first.origin, first.title())
        })
        .collect();
    for one in plan(input, admission) {
        if let Some(message) = &one.message {
            warnings.push(format!("{}: its pods are denied: {message}", one.title()));
        }
    }
    warnings
}

/// The pod of a template, named after its object.
fn pod_of(workload: &CustomWorkload, template: PodTemplateSpec) -> Pod {
    let PodTemplateSpec { metadata, spec } = template;
    let ObjectMeta { labels, annotations, .. } = metadata.unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(workload.name.clone()),
        namespace: workload.namespace.clone(),
        labels,
        annotations,
        ..ObjectMeta::default()
    };
    Pod { metadata, spec, status: None }
}

/// The tenant of the object's pods. Their pool is known if a pod has no choice; a namespace that refuses a pod that asks for
/// nothing refuses them all.
fn without_template(workload: &CustomWorkload, input: &Input, admission: &Admission) -> Planned {
    let spec = PodSpec { containers: vec![Container::default()], ..PodSpec::default() };
    let pod = pod_of(workload, PodTemplateSpec { metadata: None, spec: Some(spec) });
    let namespace = workload.namespace.as_deref();
    let mut verdict = match namespace {
        Some(_) => admission.create(&pod, input).1,
        None => Verdict::unchanged(),
    };
    let has_choice = namespace.is_some_and(|namespace| match admission.tenants().tenancy(namespace) {
        NamespaceTenancy::Tenant { tenant, default_pool } => default_pool.is_none() && tenant.pools.len() > 1,
        _ => false,
    });
    if has_choice {
        verdict.pool = None;
    }
    let is_denied = matches!(verdict.outcome, Outcome::Denied(_));
    verdict.patch = Value::Array(Vec::new());
    let mut one = entry(&workload.kind, &pod, None, &Value::Null, verdict);
    one.after = Value::Null;
    if !is_denied {
        one.outcome = "unknown".into();
        one.warnings.clear();
    }
    one
}
