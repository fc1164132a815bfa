//! The table of watched kinds: the name of each, which of its objects are watched, and which decisions wait for its first
//! list.

use croft_policy::{
    definitions::{REPLICA_LABEL, TENANT_LABEL},
    replica_status::WEBHOOK,
};

use crate::kube_api::ObjectKind;

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

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $selector:expr, $awaited:ident;)+) => {
        /// A kind of object that deciders read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is the kind it is named for")]
        pub enum Kind {
            $($(#[$doc])* $kind,)+
            /// An object that Croft keeps for a tenant. LimitRanges among them are watched apart from all of them.
            TenantObject(ObjectKind),
        }

        impl Kind {
            /// Every kind, in the order in which watches start.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$kind),+].into_iter().chain(ObjectKind::ALL.map(Self::TenantObject))
            }

            const fn row(self) -> (&'static str, Selector, AwaitedBy) {
                use Selector::{All, Fields, Label, LabelIs};
                match self {
                    $(Self::$kind => (stringify!($kind), $selector, AwaitedBy::$awaited),)+
                    // Objects of others have no such label, and aren't read.
                    Self::TenantObject(kind) => (kind.name(), Label(TENANT_LABEL), AwaitedBy::Tenancy),
                }
            }
        }
    };
}

const OF_CROFT: Selector = Selector::LabelIs("app.kubernetes.io/part-of", "croft");

// The kind, which of its objects are watched, and who waits for its first list.
kinds! {
    // Finished pods need no node: leaving them out keeps finished Jobs from filling the memory.
    Pod: Fields("status.phase!=Succeeded,status.phase!=Failed"), Both;
    Node: All, Both;
    NodeClaim: All, Both;
    TenantPool: All, Both;
    EC2NodeClass: All, Capacity;
    Tenant: All, Both;
    CroftConfig: All, Both;
    Namespace: All, Both;
    DaemonSet: All, Both;
    LimitRange: All, Capacity;
    RuntimeClass: All, Capacity;
    PersistentVolumeClaim: All, Capacity;
    PersistentVolume: All, Capacity;
    StorageClass: All, Capacity;
    CSINode: All, Capacity;
    VolumeAttachment: All, Capacity;
    PodDisruptionBudget: All, Capacity;
    /// A Lease by which a replica of the webhook reports its status.
    WebhookReplica: LabelIs(REPLICA_LABEL, WEBHOOK), Tenancy;
    ValidatingAdmissionPolicy: OF_CROFT, Tenancy;
    ValidatingAdmissionPolicyBinding: OF_CROFT, Tenancy;
    /// An event that reports a refused pod: ReplicaSets, Jobs and the like say so when the API server refuses one.
    Event: Fields("reason=FailedCreate"), Neither;
}

impl Kind {
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
        Self::all().filter(|kind| kind.is_awaited_by_capacity())
    }

    /// The kinds whose first list must be complete before the first decision about tenancy.
    pub fn awaited_by_tenancy() -> impl Iterator<Item = Self> {
        Self::all().filter(|kind| kind.is_awaited_by_tenancy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_decision_waits_for_every_kind_but_events() {
        let awaited = |kind: &Kind| kind.is_awaited_by_capacity() || kind.is_awaited_by_tenancy();
        let others: Vec<Kind> = Kind::all().filter(|kind| !awaited(kind)).collect();
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
