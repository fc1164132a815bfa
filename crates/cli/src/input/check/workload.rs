//! What the API server refuses in the kinds that make pods.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job, JobSpec},
        core::v1::{PodTemplateSpec, ReplicationController},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{Wrong, pod};

pub(in crate::input) fn deployment(object: &Deployment, wrong: &mut Wrong) {
    let Some(spec) = &object.spec else { return missing_spec(wrong) };
    replicas(spec.replicas, wrong);
    selected_template(&spec.selector, &spec.template, &["Always"], wrong);
}

pub(in crate::input) fn replica_set(object: &ReplicaSet, wrong: &mut Wrong) {
    let Some(spec) = &object.spec else { return missing_spec(wrong) };
    replicas(spec.replicas, wrong);
    match &spec.template {
        Some(pod) => selected_template(&spec.selector, pod, &["Always"], wrong),
        None => wrong.push(("spec.template".to_owned(), "this is required".to_owned())),
    }
}

pub(in crate::input) fn stateful_set(object: &StatefulSet, wrong: &mut Wrong) {
    let Some(spec) = &object.spec else { return missing_spec(wrong) };
    replicas(spec.replicas, wrong);
    selected_template(&spec.selector, &spec.template, &["Always"], wrong);
}

pub(in crate::input) fn daemon_set(object: &DaemonSet, wrong: &mut Wrong) {
    let Some(spec) = &object.spec else { return missing_spec(wrong) };
    selected_template(&spec.selector, &spec.template, &["Always"], wrong);
}

pub(in crate::input) fn replication_controller(object: &ReplicationController, wrong: &mut Wrong) {
    let Some(spec) = &object.spec else { return missing_spec(wrong) };
    replicas(spec.replicas, wrong);
    match &spec.template {
        Some(pod) => template("spec.template", pod, &["Always"], wrong),
        None => wrong.push(("spec.template".to_owned(), "this is required".to_owned())),
    }
}

pub(in crate::input) fn job(object: &Job, wrong: &mut Wrong) {
    match &object.spec {
        Some(spec) => job_spec("spec", spec, wrong),
        None => missing_spec(wrong),
    }
}

pub(in crate::input) fn cron_job(object: &CronJob, wrong: &mut Wrong) {
    let spec = &object.spec;
    if spec.schedule.is_empty() {
        wrong.push(("spec.schedule".to_owned(), "this is required".to_owned()));
    }
    match &spec.job_template.spec {
        Some(spec) => job_spec("spec.jobTemplate.spec", spec, wrong),
        None => wrong.push(("spec.jobTemplate.spec".to_owned(), "this is required".to_owned())),
    }
}

fn job_spec(path: &str, spec: &JobSpec, wrong: &mut Wrong) {
    for (field, value) in [("parallelism", spec.parallelism), ("completions", spec.completions)] {
        if let Some(value) = value.filter(|v| *v < 0) {
            wrong.push((format!("{path}.{field}"), format!("{value} is below zero")));
        }
    }
    template(&format!("{path}.template"), &spec.template, &["Never", "OnFailure"], wrong);
}

fn missing_spec(wrong: &mut Wrong) {
    wrong.push(("spec".to_owned(), "this is required".to_owned()));
}

fn replicas(replicas: Option<i32>, wrong: &mut Wrong) {
    if let Some(replicas) = replicas.filter(|r| *r < 0) {
        wrong.push(("spec.replicas".to_owned(), format!("{replicas} is below zero")));
    }
}

fn selected_template(selector: &LabelSelector, pod: &PodTemplateSpec, policies: &[&str], wrong: &mut Wrong) {
    let before = wrong.len();
    pod::selector("spec.selector", Some(selector), wrong);
    let labels = pod.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    if selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    {
        wrong.push((
            "spec.selector".to_owned(),
            "this is required: write matchLabels as in the template's labels".to_owned(),
        ));
    } else if before == wrong.len() {
        for (key, value) in selector.match_labels.iter().flatten() {
            if labels.get(key) != Some(value) {
                let message = format!("the template's labels lack {key}={value}, which spec.selector wants");
                wrong.push(("spec.template.metadata.labels".to_owned(), message));
            }
        }
    }
    template("spec.template", pod, policies, wrong);
}

fn template(path: &str, template: &PodTemplateSpec, policies: &[&str], wrong: &mut Wrong) {
    super::labels(
        &format!("{path}.metadata.labels"),
        template.metadata.as_ref().and_then(|m| m.labels.as_ref()),
        wrong,
    );
    let Some(spec) = &template.spec else {
        wrong.push((format!("{path}.spec"), "this is required: a template needs containers".to_owned()));
        return;
    };
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    if !policies.contains(&policy) {
        let message = format!("{policy:?} isn't allowed here; write {}", policies.join(" or "));
        wrong.push((format!("{path}.spec.restartPolicy"), message));
    }
    pod::spec(&format!("{path}.spec"), spec, wrong);
}
