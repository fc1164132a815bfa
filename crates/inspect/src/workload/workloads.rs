//! Pods that workloads still have to create.
//!
//! A Deployment counts for its replicas less its pods in the input, so that a dump of a cluster (Deployments, ReplicaSets
//! and Pods) isn't counted twice. A CronJob counts for one run.

use croft_manifest::{Input, Origin, Sourced};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    batch::v1::{CronJob, Job},
    core::v1::{PersistentVolumeClaim, PodTemplateSpec},
};
use kube::ResourceExt as _;
use rustc_hash::FxHashSet;

use super::owners::{Owners, controller};

/// An object that creates pods from a template.
#[derive(Clone, Debug)]
pub struct Workload<'i> {
    pub(crate) kind: WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) origin: &'i Origin,
    pub(crate) template: &'i PodTemplateSpec,
    /// Pods still to be created; 0 for a DaemonSet, whose number depends on the nodes.
    pub(crate) missing: usize,
    /// Volume claims of each pod of a StatefulSet.
    pub(crate) claim_templates: &'i [PersistentVolumeClaim],
    /// Ordinal of the first pod of a StatefulSet.
    pub(crate) first: i32,
    /// True for a Job with completion mode Indexed.
    pub(crate) indexed: bool,
    /// The DaemonSet itself, for one.
    pub daemon_set: Option<&'i DaemonSet>,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    ReplicationController,
    Job,
    CronJob,
}

impl WorkloadKind {
    /// As Kubernetes spells it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    /// apiVersion and kind of the pods' owner: a ReplicaSet for a Deployment, a Job for a CronJob.
    pub(crate) const fn owner(self) -> (&'static str, &'static str) {
        match self {
            Self::Deployment | Self::ReplicaSet => ("apps/v1", "ReplicaSet"),
            Self::StatefulSet => ("apps/v1", "StatefulSet"),
            Self::DaemonSet => ("apps/v1", "DaemonSet"),
            Self::ReplicationController => ("v1", "ReplicationController"),
            Self::Job | Self::CronJob => ("batch/v1", "Job"),
        }
    }
}

impl Workload<'_> {
    /// Kind, namespace and name, for messages: `Deployment shop/web`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// Every workload of the input, kind by kind.
#[must_use]
pub fn workloads(input: &Input) -> Vec<Workload<'_>> {
    let owners = Owners::new(input);
    let mut all = Vec::new();
    for set in &input.deployments {
        let Some(spec) = &set.spec else { continue };
        let (namespace, name) = key(&set.object);
        let missing = count(spec.replicas).saturating_sub(owners.count_of_deployment(&namespace, &name));
        all.push(Workload {
            missing,
            ..plain(WorkloadKind::Deployment, &set.object, &set.origin, &spec.template)
        });
    }
    for set in &input.replica_sets {
        let Some((spec, template)) = set.spec.as_ref().and_then(|s| Some((s, s.template.as_ref()?))) else {
            continue;
        };
        let (namespace, name) = key(&set.object);
        let by_deployment = controller(&set.metadata)
            .is_some_and(|o| o.kind == "Deployment" && input.deployments.get(&namespace, &o.name).is_some());
        if by_deployment {
            continue;
        }
        let missing = count(spec.replicas).saturating_sub(owners.count("ReplicaSet", &namespace, &name));
        all.push(Workload { missing, ..plain(WorkloadKind::ReplicaSet, &set.object, &set.origin, template) });
    }
    for set in &input.stateful_sets {
        let Some(spec) = &set.spec else { continue };
        let (namespace, name) = key(&set.object);
        all.push(Workload {
            missing: count(spec.replicas).saturating_sub(owners.count("StatefulSet", &namespace, &name)),
            claim_templates: spec.volume_claim_templates.as_deref().unwrap_or_default(),
            first: spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0),
            ..plain(WorkloadKind::StatefulSet, &set.object, &set.origin, &spec.template)
        });
    }
    for set in &input.daemon_sets {
        let Some(spec) = &set.spec else { continue };
        all.push(Workload {
            daemon_set: Some(&set.object),
            ..plain(WorkloadKind::DaemonSet, &set.object, &set.origin, &spec.template)
        });
    }
    for set in &input.replication_controllers {
        let Some((spec, template)) = set.spec.as_ref().and_then(|s| Some((s, s.template.as_ref()?))) else {
            continue;
        };
        let (namespace, name) = key(&set.object);
        let missing =
            count(spec.replicas).saturating_sub(owners.count("ReplicationController", &namespace, &name));
        all.push(Workload {
            missing,
            ..plain(WorkloadKind::ReplicationController, &set.object, &set.origin, template)
        });
    }
    all.extend(input.jobs.iter().filter_map(|job| job_workload(job, &owners)));
    let active = active_cron_jobs(input);
    all.extend(input.cron_jobs.iter().filter_map(|cron| cron_job_workload(cron, &active)));
    all
}

fn job_workload<'i>(job: &'i Sourced<Job>, owners: &Owners) -> Option<Workload<'i>> {
    let spec = job.spec.as_ref()?;
    let (namespace, name) = key(&job.object);
    let done = count(job.status.as_ref().and_then(|s| s.succeeded));
    let finished = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
    let wanted = if finished { 0 } else { running(spec.suspend, spec.parallelism, spec.completions, done) };
    Some(Workload {
        missing: wanted.saturating_sub(owners.count("Job", &namespace, &name)),
        indexed: spec.completion_mode.as_deref() == Some("Indexed"),
        ..plain(WorkloadKind::Job, &job.object, &job.origin, &spec.template)
    })
}

/// Namespace and name of each CronJob that has a Job in the input.
fn active_cron_jobs(input: &Input) -> FxHashSet<(String, String)> {
    let cron_job = |job: &Sourced<Job>| {
        let owner = controller(&job.metadata).filter(|owner| owner.kind == "CronJob")?;
        Some((job.namespace()?, owner.name.clone()))
    };
    input.jobs.iter().filter_map(cron_job).collect()
}

/// One run of a CronJob, unless it is suspended or one of its Jobs is in the input.
fn cron_job_workload<'i>(
    cron: &'i Sourced<CronJob>,
    active: &FxHashSet<(String, String)>,
) -> Option<Workload<'i>> {
    let spec = cron.spec.job_template.spec.as_ref()?;
    let idle = active.contains(&key(&cron.object)) || cron.spec.suspend == Some(true);
    Some(Workload {
        missing: if idle { 0 } else { running(spec.suspend, spec.parallelism, spec.completions, 0) },
        indexed: spec.completion_mode.as_deref() == Some("Indexed"),
        ..plain(WorkloadKind::CronJob, &cron.object, &cron.origin, &spec.template)
    })
}

/// Pods of a Job that run at once.
fn running(suspend: Option<bool>, parallelism: Option<i32>, completions: Option<i32>, done: usize) -> usize {
    if suspend == Some(true) {
        return 0;
    }
    let at_once = parallelism.map_or(1, |p| count(Some(p)));
    completions.map_or(at_once, |all| at_once.min(count(Some(all)).saturating_sub(done)))
}

fn plain<'i, T: kube::Resource>(
    kind: WorkloadKind,
    object: &T,
    origin: &'i Origin,
    template: &'i PodTemplateSpec,
) -> Workload<'i> {
    let (namespace, name) = key(object);
    Workload {
        kind,
        namespace,
        name,
        uid: object.meta().uid.clone(),
        origin,
        template,
        missing: 0,
        claim_templates: &[],
        first: 0,
        indexed: false,
        daemon_set: None,
    }
}

fn key<T: kube::Resource>(object: &T) -> (String, String) {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

fn count(number: Option<i32>) -> usize {
    usize::try_from(number.unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    #[test]
    fn a_cron_job_counts_for_no_run_while_one_of_its_jobs_in_its_namespace_is_there() {
        let template = "{spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}";
        let cron = |namespace: &str| {
            format!(
                "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: nightly, namespace: {namespace}}}\nspec: {{schedule: \"0 3 * * *\", jobTemplate: {{spec: {{template: {template}}}}}}}\n"
            )
        };
        let owner = "{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: u, controller: true}";
        let job = format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: nightly-1, namespace: shop, ownerReferences: [{owner}]}}\nspec: {{template: {template}}}\n"
        );
        let text = format!("{}{}{job}", cron("shop"), cron("bank"));
        let input = parse("jobs.yaml", &text, &LoadOptions::default()).unwrap();
        let runs = workloads(&input).into_iter().filter(|one| one.kind == WorkloadKind::CronJob);
        let runs: Vec<(String, usize)> = runs.map(|one| (one.namespace, one.missing)).collect();
        assert_eq!(runs, [("shop".to_owned(), 0), ("bank".to_owned(), 1)]);
    }
}
