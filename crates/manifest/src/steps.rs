//! How objects of one kind are processed after decoding, and the steps of Kubernetes' own kinds.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{
        LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    },
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
    storage::v1::{CSINode, StorageClass},
};

use crate::{
    check::{self, FieldErrors},
    defaults,
};

/// Scope, defaults and validation of a kind.
pub(crate) struct Steps<T> {
    pub(crate) namespaced: bool,
    /// Refuse unknown fields. Kubernetes's own kinds come from clusters that may be newer than this version.
    pub(crate) strict: bool,
    /// Fills in what the API server would.
    pub(crate) default: fn(&mut T),
    /// Appends what the API server would refuse.
    pub(crate) check: fn(&T, &mut FieldErrors),
}

impl<T> Steps<T> {
    pub(crate) const CLUSTER: Self =
        Self { namespaced: false, strict: false, default: |_| {}, check: |_, _| {} };
    pub(crate) const NAMESPACED: Self = Self { namespaced: true, ..Self::CLUSTER };
}

pub(crate) const NAMESPACE: Steps<Namespace> = Steps { default: name_label, ..Steps::CLUSTER };
pub(crate) const NODE: Steps<Node> = Steps { check: check::node, ..Steps::CLUSTER };
pub(crate) const POD: Steps<Pod> = Steps { default: defaults::pod, check: check::pod, ..Steps::NAMESPACED };
pub(crate) const REPLICATION_CONTROLLER: Steps<ReplicationController> = Steps {
    default: defaults::replication_controller,
    check: check::replication_controller,
    ..Steps::NAMESPACED
};
pub(crate) const DEPLOYMENT: Steps<Deployment> =
    Steps { default: defaults::deployment, check: check::deployment, ..Steps::NAMESPACED };
pub(crate) const REPLICA_SET: Steps<ReplicaSet> =
    Steps { default: defaults::replica_set, check: check::replica_set, ..Steps::NAMESPACED };
pub(crate) const STATEFUL_SET: Steps<StatefulSet> =
    Steps { default: defaults::stateful_set, check: check::stateful_set, ..Steps::NAMESPACED };
pub(crate) const DAEMON_SET: Steps<DaemonSet> =
    Steps { default: defaults::daemon_set, check: check::daemon_set, ..Steps::NAMESPACED };
pub(crate) const JOB: Steps<Job> = Steps { default: defaults::job, check: check::job, ..Steps::NAMESPACED };
pub(crate) const CRON_JOB: Steps<CronJob> =
    Steps { default: defaults::cron_job, check: check::cron_job, ..Steps::NAMESPACED };
pub(crate) const VOLUME_CLAIM: Steps<PersistentVolumeClaim> = Steps::NAMESPACED;
pub(crate) const VOLUME: Steps<PersistentVolume> = Steps::CLUSTER;
pub(crate) const LIMIT_RANGE: Steps<LimitRange> = Steps::NAMESPACED;
pub(crate) const BUDGET: Steps<PodDisruptionBudget> = Steps { check: check::budget, ..Steps::NAMESPACED };
pub(crate) const STORAGE_CLASS: Steps<StorageClass> = Steps::CLUSTER;
pub(crate) const CSI_NODE: Steps<CSINode> = Steps::CLUSTER;
pub(crate) const PRIORITY_CLASS: Steps<PriorityClass> = Steps::CLUSTER;
pub(crate) const RUNTIME_CLASS: Steps<RuntimeClass> = Steps::CLUSTER;

/// Adds the label with the namespace's name, which selectors use.
fn name_label(namespace: &mut Namespace) {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    namespace.metadata.labels.get_or_insert_default().insert("kubernetes.io/metadata.name".to_owned(), name);
}
