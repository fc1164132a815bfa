//! Defaults of the kinds that create pods.

use k8s_openapi::{
    api::{
        apps::v1::{
            DaemonSet, DaemonSetUpdateStrategy, Deployment, DeploymentStrategy, ReplicaSet,
            RollingUpdateDaemonSet, RollingUpdateDeployment, RollingUpdateStatefulSetStrategy, StatefulSet,
            StatefulSetUpdateStrategy,
        },
        batch::v1::{CronJob, Job, JobSpec},
        core::v1::ReplicationController,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{
    pod::pod_spec,
    volume::{self, fill, fill_text},
};

pub(crate) fn deployment(deployment: &mut Deployment) {
    let Some(spec) = &mut deployment.spec else { return };
    fill(&mut spec.replicas, 1);
    let strategy = spec.strategy.get_or_insert_with(DeploymentStrategy::default);
    fill_text(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let rolling = strategy.rolling_update.get_or_insert_with(RollingUpdateDeployment::default);
        fill(&mut rolling.max_unavailable, IntOrString::String("25%".to_owned()));
        fill(&mut rolling.max_surge, IntOrString::String("25%".to_owned()));
    }
    fill(&mut spec.revision_history_limit, 10);
    fill(&mut spec.progress_deadline_seconds, 600);
    if let Some(pod) = &mut spec.template.spec {
        pod_spec(pod);
    }
}

pub(crate) fn replica_set(set: &mut ReplicaSet) {
    let Some(spec) = &mut set.spec else { return };
    fill(&mut spec.replicas, 1);
    if let Some(pod) = spec.template.as_mut().and_then(|t| t.spec.as_mut()) {
        pod_spec(pod);
    }
}

pub(crate) fn replication_controller(controller: &mut ReplicationController) {
    let Some(spec) = &mut controller.spec else { return };
    fill(&mut spec.replicas, 1);
    let Some(template) = &mut spec.template else { return };
    if let Some(labels) = template.metadata.as_ref().and_then(|m| m.labels.as_ref()).filter(|l| !l.is_empty())
    {
        if spec.selector.as_ref().is_none_or(|s| s.is_empty()) {
            spec.selector = Some(labels.clone());
        }
        if controller.metadata.labels.as_ref().is_none_or(|l| l.is_empty()) {
            controller.metadata.labels = Some(labels.clone());
        }
    }
    if let Some(pod) = &mut template.spec {
        pod_spec(pod);
    }
}

pub(crate) fn daemon_set(set: &mut DaemonSet) {
    let Some(spec) = &mut set.spec else { return };
    let strategy = spec.update_strategy.get_or_insert_with(DaemonSetUpdateStrategy::default);
    fill_text(&mut strategy.type_, "RollingUpdate");
    if strategy.type_.as_deref() == Some("RollingUpdate") {
        let rolling = strategy.rolling_update.get_or_insert_with(RollingUpdateDaemonSet::default);
        fill(&mut rolling.max_unavailable, IntOrString::Int(1));
        fill(&mut rolling.max_surge, IntOrString::Int(0));
    }
    fill(&mut spec.revision_history_limit, 10);
    if let Some(pod) = &mut spec.template.spec {
        pod_spec(pod);
    }
}

pub(crate) fn stateful_set(set: &mut StatefulSet) {
    let Some(spec) = &mut set.spec else { return };
    fill_text(&mut spec.pod_management_policy, "OrderedReady");
    let strategy = spec.update_strategy.get_or_insert_with(StatefulSetUpdateStrategy::default);
    if strategy.type_.as_deref().unwrap_or_default().is_empty() {
        strategy.type_ = Some("RollingUpdate".to_owned());
        // Only a strategy that is left out altogether gets its partition filled in: apps/v1/defaults.go.
        fill(
            &mut strategy.rolling_update,
            RollingUpdateStatefulSetStrategy { partition: Some(0), ..Default::default() },
        );
    }
    if strategy.type_.as_deref() == Some("RollingUpdate")
        && let Some(rolling) = &mut strategy.rolling_update
    {
        fill(&mut rolling.partition, 0);
    }
    fill(&mut spec.service_name, String::new());
    let retention = spec.persistent_volume_claim_retention_policy.get_or_insert_with(Default::default);
    fill_text(&mut retention.when_deleted, "Retain");
    fill_text(&mut retention.when_scaled, "Retain");
    fill(&mut spec.replicas, 1);
    fill(&mut spec.revision_history_limit, 10);
    if let Some(pod) = &mut spec.template.spec {
        pod_spec(pod);
    }
    for claim in spec.volume_claim_templates.iter_mut().flatten() {
        if let Some(spec) = &mut claim.spec {
            volume::fill_claim(spec);
        }
        fill_text(&mut claim.status.get_or_insert_default().phase, "Pending");
    }
}

pub(crate) fn job(job: &mut Job) {
    let Some(spec) = &mut job.spec else { return };
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    fill(&mut spec.parallelism, 1);
    // With a limit per index the whole Job's is out of the way.
    let retries = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    fill(&mut spec.backoff_limit, retries);
    fill_text(&mut spec.completion_mode, "NonIndexed");
    fill(&mut spec.suspend, false);
    let policy = if spec.pod_failure_policy.is_some() { "Failed" } else { "TerminatingOrFailed" };
    fill_text(&mut spec.pod_replacement_policy, policy);
    fill(&mut spec.manual_selector, false);
    if let Some(labels) =
        spec.template.metadata.as_ref().and_then(|m| m.labels.as_ref()).filter(|l| !l.is_empty())
        && job.metadata.labels.as_ref().is_none_or(|l| l.is_empty())
    {
        job.metadata.labels = Some(labels.clone());
    }
    fill_pod_failure_policy(spec);
    if let Some(pod) = &mut spec.template.spec {
        pod_spec(pod);
    }
}

fn fill_pod_failure_policy(spec: &mut JobSpec) {
    let Some(policy) = &mut spec.pod_failure_policy else { return };
    for pattern in policy.rules.iter_mut().filter_map(|r| r.on_pod_conditions.as_mut()).flatten() {
        fill_text(&mut pattern.status, "True");
    }
}

pub(crate) fn cron_job(job: &mut CronJob) {
    let spec = &mut job.spec;
    fill_text(&mut spec.concurrency_policy, "Allow");
    fill(&mut spec.suspend, false);
    fill(&mut spec.successful_jobs_history_limit, 3);
    fill(&mut spec.failed_jobs_history_limit, 1);
    if let Some(pod) = spec.job_template.spec.as_mut().and_then(|s| s.template.spec.as_mut()) {
        pod_spec(pod);
    }
}
