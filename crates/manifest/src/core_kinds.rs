//! Steps of the kinds of Kubernetes itself.

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

use crate::{check, defaults, steps::Steps};

pub(crate) const NAMESPACE: Steps<Namespace> = Steps { default: defaults::name_label, ..Steps::CLUSTER };
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
pub(crate) const BUDGET: Steps<PodDisruptionBudget> = Steps::NAMESPACED;
pub(crate) const STORAGE_CLASS: Steps<StorageClass> = Steps::CLUSTER;
pub(crate) const CSI_NODE: Steps<CSINode> = Steps::CLUSTER;
pub(crate) const PRIORITY_CLASS: Steps<PriorityClass> = Steps::CLUSTER;
pub(crate) const RUNTIME_CLASS: Steps<RuntimeClass> = Steps::CLUSTER;
