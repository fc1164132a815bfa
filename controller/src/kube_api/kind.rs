//! The table of watched kinds: the name of each, which of its objects are watched, and which decisions wait for its first
//! list.

use croft_policy::{
    definitions::{REPLICA_LABEL, TENANT_LABEL},
    replica_status::WEBHOOK,
};

use crate::kube_api::ObjectKind;

/// A kind of object that deciders read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the kind it is named for")]
pub enum Kind {
    Pod,
    Node,
    NodeClaim,
    TenantPool,
    EC2NodeClass,
    Tenant,
    CroftConfig,
    Namespace,
    DaemonSet,
    LimitRange,
    RuntimeClass,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
    VolumeAttachment,
    PodDisruptionBudget,
    /// A Lease by which a replica of the webhook reports its status.
    WebhookReplica,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    /// An object that Croft keeps for a tenant. LimitRanges among them are watched apart from all of them.
    TenantObject(ObjectKind),
    /// An event that reports a refused pod.
    Event,
}

/// Which objects of a kind are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every one.
    All,
    /// By a field selector.
    Fields(&'static str),
    /// Objects with a label.
    Label(&'static str),
    /// Objects with a value of a label.
    LabelIs(&'static str, &'static str),
}

/// The decisions that wait for the first list of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AwaitedBy {
    /// Decisions about capacity: a plan made without a node, a claim or a tenant's limits would launch nodes that aren't
    /// needed.
    Capacity,
    /// Decisions about tenancy: enforced without its pods or policies, a tenant would be reported as isolated that isn't.
    Tenancy,
    Both,
    /// No decision. The kind concerns tenancy.
    Neither,
}

impl Kind {
    /// Every kind, in the order in which watches start.
    pub const ALL: [Self; 26] = [
        Self::Pod,
        Self::Node,
        Self::NodeClaim,
        Self::TenantPool,
        Self::EC2NodeClass,
        Self::Tenant,
        Self::CroftConfig,
        Self::Namespace,
        Self::DaemonSet,
        Self::LimitRange,
        Self::RuntimeClass,
        Self::PersistentVolumeClaim,
        Self::PersistentVolume,
        Self::StorageClass,
        Self::CSINode,
        Self::VolumeAttachment,
        Self::PodDisruptionBudget,
        Self::WebhookReplica,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionPolicyBinding,
        Self::TenantObject(ObjectKind::NetworkPolicy),
        Self::TenantObject(ObjectKind::ResourceQuota),
        Self::TenantObject(ObjectKind::LimitRange),
        Self::TenantObject(ObjectKind::RoleBinding),
        Self::TenantObject(ObjectKind::ClusterRoleBinding),
        Self::Event,
    ];

    const fn row(self) -> (&'static str, Selector, AwaitedBy) {
        use AwaitedBy::{Both, Capacity, Neither, Tenancy};
        use Selector::{All, Fields, Label, LabelIs};
        const OF_CROFT: Selector = LabelIs("app.kubernetes.io/part-of", "croft");
        match self {
            // Finished pods need no node: leaving them out keeps finished Jobs from filling the memory.
            Self::Pod => ("Pod", Fields("status.phase!=Succeeded,status.phase!=Failed"), Both),
            Self::Node => ("Node", All, Both),
            Self::NodeClaim => ("NodeClaim", All, Both),
            Self::TenantPool => ("TenantPool", All, Both),
            Self::EC2NodeClass => ("EC2NodeClass", All, Capacity),
            Self::Tenant => ("Tenant", All, Both),
            Self::CroftConfig => ("CroftConfig", All, Both),
            Self::Namespace => ("Namespace", All, Both),
            Self::DaemonSet => ("DaemonSet", All, Both),
            Self::LimitRange => ("LimitRange", All, Capacity),
            Self::RuntimeClass => ("RuntimeClass", All, Capacity),
            Self::PersistentVolumeClaim => ("PersistentVolumeClaim", All, Capacity),
            Self::PersistentVolume => ("PersistentVolume", All, Capacity),
            Self::StorageClass => ("StorageClass", All, Capacity),
            Self::CSINode => ("CSINode", All, Capacity),
            Self::VolumeAttachment => ("VolumeAttachment", All, Capacity),
            Self::PodDisruptionBudget => ("PodDisruptionBudget", All, Capacity),
            Self::WebhookReplica => ("WebhookReplica", LabelIs(REPLICA_LABEL, WEBHOOK), Tenancy),
            Self::ValidatingAdmissionPolicy => ("ValidatingAdmissionPolicy", OF_CROFT, Tenancy),
            Self::ValidatingAdmissionPolicyBinding => ("ValidatingAdmissionPolicyBinding", OF_CROFT, Tenancy),
            // Objects of others have no such label, and aren't read.
            Self::TenantObject(kind) => (kind.name(), Label(TENANT_LABEL), Tenancy),
            // ReplicaSets, Jobs and the like say so when the API server refuses a pod.
            Self::Event => ("Event", Fields("reason=FailedCreate"), Neither),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Which of its objects are watched.
    #[must_use]
    pub const fn selector(self) -> Selector {
        self.row().1
    }

    /// True if its first list must be complete before the first decision about capacity.
    #[must_use]
    pub const fn is_awaited_by_capacity(self) -> bool {
        matches!(self.row().2, AwaitedBy::Capacity | AwaitedBy::Both)
    }

    /// True if its first list must be complete before the first decision about tenancy.
    #[must_use]
    pub const fn is_awaited_by_tenancy(self) -> bool {
        matches!(self.row().2, AwaitedBy::Tenancy | AwaitedBy::Both)
    }

    /// The kinds whose first list must be complete before the first decision about capacity.
    pub fn awaited_by_capacity() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.is_awaited_by_capacity())
    }

    /// The kinds whose first list must be complete before the first decision about tenancy.
    pub fn awaited_by_tenancy() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.is_awaited_by_tenancy())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_listed_once_and_some_decision_reads_it() {
        assert_eq!(BTreeSet::from(Kind::ALL).len(), Kind::ALL.len());
        let awaited = |kind: &Kind| kind.is_awaited_by_capacity() || kind.is_awaited_by_tenancy();
        let others: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !awaited(kind)).collect();
        assert_eq!(others, [Kind::Event]);
    }

    #[test]
    fn all_limit_ranges_and_those_kept_for_tenants_are_two_kinds_of_one_name() {
        let kept = Kind::TenantObject(ObjectKind::LimitRange);
        assert_eq!(kept.name(), Kind::LimitRange.name());
        assert_eq!(
            (kept.selector(), Kind::LimitRange.selector()),
            (Selector::Label(TENANT_LABEL), Selector::All)
        );
        assert!(Kind::LimitRange.is_awaited_by_capacity() && !kept.is_awaited_by_capacity());
    }
}
