//! Checks of the kinds that create pods, as the API server has them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job, JobSpec},
        core::v1::{PodTemplateSpec, ReplicationController},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{
    metadata::{FieldErrors, labels},
    pod,
};

pub(crate) fn deployment(object: &Deployment, errors: &mut FieldErrors) {
    let Some(spec) = &object.spec else { return missing_spec(errors) };
    replicas(spec.replicas, errors);
    selected_template(&spec.selector, &spec.template, &["Always"], errors);
}

pub(crate) fn replica_set(object: &ReplicaSet, errors: &mut FieldErrors) {
    let Some(spec) = &object.spec else { return missing_spec(errors) };
    replicas(spec.replicas, errors);
    match &spec.template {
        Some(pod) => selected_template(&spec.selector, pod, &["Always"], errors),
        None => errors.push(("spec.template".to_owned(), "this is required".to_owned())),
    }
}

pub(crate) fn stateful_set(object: &StatefulSet, errors: &mut FieldErrors) {
    let Some(spec) = &object.spec else { return missing_spec(errors) };
    replicas(spec.replicas, errors);
    selected_template(&spec.selector, &spec.template, &["Always"], errors);
}

pub(crate) fn daemon_set(object: &DaemonSet, errors: &mut FieldErrors) {
    let Some(spec) = &object.spec else { return missing_spec(errors) };
    selected_template(&spec.selector, &spec.template, &["Always"], errors);
}

pub(crate) fn replication_controller(object: &ReplicationController, errors: &mut FieldErrors) {
    let Some(spec) = &object.spec else { return missing_spec(errors) };
    replicas(spec.replicas, errors);
    match &spec.template {
        Some(pod) => template("spec.template", pod, &["Always"], errors),
        None => errors.push(("spec.template".to_owned(), "this is required".to_owned())),
    }
}

pub(crate) fn job(object: &Job, errors: &mut FieldErrors) {
    match &object.spec {
        Some(spec) => job_spec("spec", spec, errors),
        None => missing_spec(errors),
    }
}

pub(crate) fn cron_job(object: &CronJob, errors: &mut FieldErrors) {
    let spec = &object.spec;
    if spec.schedule.is_empty() {
        errors.push(("spec.schedule".to_owned(), "this is required".to_owned()));
    }
    match &spec.job_template.spec {
        Some(spec) => job_spec("spec.jobTemplate.spec", spec, errors),
        None => errors.push(("spec.jobTemplate.spec".to_owned(), "this is required".to_owned())),
    }
}

fn job_spec(path: &str, spec: &JobSpec, errors: &mut FieldErrors) {
    for (field, value) in [("parallelism", spec.parallelism), ("completions", spec.completions)] {
        if let Some(value) = value.filter(|v| *v < 0) {
            errors.push((format!("{path}.{field}"), format!("{value} is below zero")));
        }
    }
    template(&format!("{path}.template"), &spec.template, &["Never", "OnFailure"], errors);
}

fn missing_spec(errors: &mut FieldErrors) {
    errors.push(("spec".to_owned(), "this is required".to_owned()));
}

fn replicas(replicas: Option<i32>, errors: &mut FieldErrors) {
    if let Some(replicas) = replicas.filter(|r| *r < 0) {
        errors.push(("spec.replicas".to_owned(), format!("{replicas} is below zero")));
    }
}

fn selected_template(
    selector: &LabelSelector,
    pod: &PodTemplateSpec,
    policies: &[&str],
    errors: &mut FieldErrors,
) {
    let before = errors.len();
    pod::selector("spec.selector", Some(selector), errors);
    let labels = pod.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    if selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    {
        errors.push((
            "spec.selector".to_owned(),
            "this is required: write matchLabels as in the template's labels".to_owned(),
        ));
    } else if before == errors.len() {
        for (key, value) in selector.match_labels.iter().flatten() {
            if labels.get(key) != Some(value) {
                let message = format!("the template's labels lack {key}={value}, which spec.selector wants");
                errors.push(("spec.template.metadata.labels".to_owned(), message));
            }
        }
    }
    template("spec.template", pod, policies, errors);
}

fn template(path: &str, template: &PodTemplateSpec, policies: &[&str], errors: &mut FieldErrors) {
    labels(
        &format!("{path}.metadata.labels"),
        template.metadata.as_ref().and_then(|m| m.labels.as_ref()),
        errors,
    );
    let Some(spec) = &template.spec else {
        errors.push((format!("{path}.spec"), "this is required: a template needs containers".to_owned()));
        return;
    };
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    if !policies.contains(&policy) {
        let message = format!("{policy:?} isn't allowed here; write {}", policies.join(" or "));
        errors.push((format!("{path}.spec.restartPolicy"), message));
    }
    pod::spec(&format!("{path}.spec"), spec, errors);
}
