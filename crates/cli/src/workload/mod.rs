//! From workloads to the pods that their controllers would make.
//!
//! A Deployment counts for its replicas less the pods of it that are in the input already, so that a dump of a
//! cluster (Deployments, their ReplicaSets and Pods together) isn't counted twice. A CronJob counts for one run.

mod owners;
mod pods;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec},
};
use kube::ResourceExt as _;

use crate::input::{Input, Origin};
pub(crate) use owners::{Owners, controller, is_active};
pub(crate) use pods::{Names, make};

/// Something that makes pods from a template.
#[derive(Clone, Debug)]
pub(crate) struct Workload<'i> {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) origin: &'i Origin,
    pub(crate) template: &'i PodTemplateSpec,
    /// Pods that are still to be made. 0 for a DaemonSet: the nodes decide.
    pub(crate) missing: usize,
    /// Claims that each pod of a StatefulSet gets.
    pub(crate) claim_templates: &'i [PersistentVolumeClaim],
    /// The first pod's number, for StatefulSets.
    pub(crate) first: i32,
    /// Each pod of an Indexed Job has a number of its own.
    pub(crate) indexed: bool,
    pub(crate) daemon_set: Option<&'i DaemonSet>,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    ReplicationController,
    Job,
    CronJob,
}

impl Kind {
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

    /// Who owns the pods: a Deployment's are a ReplicaSet's, a CronJob's a Job's.
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
    /// As messages name it: `Deployment shop/web`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }

    /// The pod that the template makes, before any admission, under the workload's own name.
    pub(crate) fn prototype(&self) -> Pod {
        pods::prototype(self)
    }
}

/// Every workload of the input with what it still has to make, in a fixed order.
pub(crate) fn workloads(input: &Input) -> Vec<Workload<'_>> {
    let owners = Owners::new(input);
    let mut all = Vec::new();
    for set in &input.deployments {
        let Some(spec) = &set.spec else { continue };
        let (namespace, name) = key(&set.object);
        let missing = count(spec.replicas).saturating_sub(owners.of_deployment(&namespace, &name));
        all.push(Workload { missing, ..plain(Kind::Deployment, &set.object, &set.origin, &spec.template) });
    }
    for set in &input.replica_sets {
        let Some((spec, template)) = set.spec.as_ref().and_then(|s| Some((s, s.template.as_ref()?))) else {
            continue;
        };
        let (namespace, name) = key(&set.object);
        let by_deployment = owners::controller(&set.metadata)
            .is_some_and(|o| o.kind == "Deployment" && input.deployments.get(&namespace, &o.name).is_some());
        if by_deployment {
            continue;
        }
        let missing = count(spec.replicas).saturating_sub(owners.of("ReplicaSet", &namespace, &name));
        all.push(Workload { missing, ..plain(Kind::ReplicaSet, &set.object, &set.origin, template) });
    }
    for set in &input.stateful_sets {
        let Some(spec) = &set.spec else { continue };
        let (namespace, name) = key(&set.object);
        all.push(Workload {
            missing: count(spec.replicas).saturating_sub(owners.of("StatefulSet", &namespace, &name)),
            claim_templates: spec.volume_claim_templates.as_deref().unwrap_or_default(),
            first: spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0),
            ..plain(Kind::StatefulSet, &set.object, &set.origin, &spec.template)
        });
    }
    for set in &input.daemon_sets {
        let Some(spec) = &set.spec else { continue };
        all.push(Workload {
            daemon_set: Some(&set.object),
            ..plain(Kind::DaemonSet, &set.object, &set.origin, &spec.template)
        });
    }
    for set in &input.replication_controllers {
        let Some((spec, template)) = set.spec.as_ref().and_then(|s| Some((s, s.template.as_ref()?))) else {
            continue;
        };
        let (namespace, name) = key(&set.object);
        let missing =
            count(spec.replicas).saturating_sub(owners.of("ReplicationController", &namespace, &name));
        all.push(Workload {
            missing,
            ..plain(Kind::ReplicationController, &set.object, &set.origin, template)
        });
    }
    for job in &input.jobs {
        let Some(spec) = &job.spec else { continue };
        let (namespace, name) = key(&job.object);
        let done = count(job.status.as_ref().and_then(|s| s.succeeded));
        let finished = job
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten())
            .any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
        let wanted =
            if finished { 0 } else { running(spec.suspend, spec.parallelism, spec.completions, done) };
        all.push(Workload {
            missing: wanted.saturating_sub(owners.of("Job", &namespace, &name)),
            indexed: spec.completion_mode.as_deref() == Some("Indexed"),
            ..plain(Kind::Job, &job.object, &job.origin, &spec.template)
        });
    }
    for cron in &input.cron_jobs {
        let Some(spec) = &cron.spec.job_template.spec else { continue };
        let (namespace, name) = key(&cron.object);
        let under_way = input.jobs.iter().any(|job| {
            owners::controller(&job.metadata).is_some_and(|o| o.kind == "CronJob" && o.name == name)
                && job.namespace().as_deref() == Some(namespace.as_str())
        });
        let rests = under_way || cron.spec.suspend == Some(true);
        all.push(Workload {
            missing: if rests { 0 } else { running(spec.suspend, spec.parallelism, spec.completions, 0) },
            indexed: spec.completion_mode.as_deref() == Some("Indexed"),
            ..plain(Kind::CronJob, &cron.object, &cron.origin, &spec.template)
        });
    }
    all
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
    kind: Kind,
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
