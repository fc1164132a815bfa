//! Reasons of Events.

use super::define;

define! {
    /// Reasons of events.
    pub const ALL;

    /// A NodeClaim was created for it.
    NOMINATED = "Nominated", on "Pod";
    /// It was there before its Tenant or the pools, and is outside its pools or inside others. Croft leaves it where it is.
    MISPLACED = "Misplaced", on "Pod";
    /// Its launch ended without an instance; the claim is deleted and its pods are planned again.
    LAUNCH_FAILED = "LaunchFailed", on "NodeClaim";
    /// It had no instance in time; the claim is deleted and its pods are planned again.
    LAUNCH_TIMEOUT = "LaunchTimeout", on "NodeClaim";
    /// Its EC2NodeClass doesn't exist.
    CLASS_NOT_FOUND = "ClassNotFound", on "NodeClaim";
    /// Its node didn't register in time; the instance is terminated.
    REGISTRATION_TIMEOUT = "RegistrationTimeout", on "NodeClaim";
    /// Its node registered and wasn't initialized in time; the node is drained and its instance terminated.
    INITIALIZATION_TIMEOUT = "InitializationTimeout", on "NodeClaim";
    /// Its node has nothing of its pool, so that the controller may not write it; it is terminated after the registration timeout.
    REGISTRATION_REFUSED = "RegistrationRefused", on "NodeClaim";
    /// A node has the name of its instance's node, but another provider id.
    NODE_MISMATCH = "NodeMismatch", on "NodeClaim";
    /// Labels of its node were changed, and are restored.
    LABELS_RESTORED = "LabelsRestored", on "NodeClaim";
    /// Taints of its pool were removed from its node, and are restored.
    TAINTS_RESTORED = "TaintsRestored", on "NodeClaim";
    /// Its Node was deleted; the instance is drained and terminated.
    NODE_GONE = "NodeGone", on "NodeClaim";
    /// Its instance is gone; the claim is deleted and its pods are planned again.
    INSTANCE_GONE = "InstanceGone", on "NodeClaim";
    /// An eviction from its node was refused.
    FAILED_DRAINING = "FailedDraining", on "NodeClaim";
    /// Replacements for its node are being launched.
    DISRUPTION_STARTED = "DisruptionStarted", on "NodeClaim";
    /// Its replacements are ready or not needed; the node is being removed.
    DISRUPTED = "Disrupted", on "NodeClaim";
    /// Its node should be removed or replaced, but something blocks that.
    DISRUPTION_BLOCKED = "DisruptionBlocked", on "NodeClaim";
    /// Its disruption was rolled back; the node stays.
    DISRUPTION_FAILED = "DisruptionFailed", on "NodeClaim";
    /// Its node is empty and is being removed.
    EMPTY = "Empty", on "NodeClaim";
    /// Its node has not been Ready for too long, its monitoring agent reports a defect, or a status check of its instance fails; it is
    /// being removed.
    UNHEALTHY = "Unhealthy", on "NodeClaim";
    /// The cloud takes its instance; its pods are being evicted.
    INTERRUPTED = "Interrupted", on "NodeClaim";
    /// A message about its instance has no effect: it is outdated, or a recommendation that its pool ignores.
    INTERRUPTION_IGNORED = "InterruptionIgnored", on "NodeClaim";
    /// Its pool or template has more nodes than `replicas`; the node is being removed.
    SCALED_DOWN = "ScaledDown", on "NodeClaim";
    /// The pool that would be made from it for a Tenant has the name of another.
    POOL_NAME_TAKEN = "PoolNameTaken", on "TenantPool";
    /// An earlier finding is missing.
    FINDINGS_MISSING = "FindingsMissing", on "EC2NodeClass";
    /// A disruption budget can't be read, so that no node is removed.
    BUDGET_UNREADABLE = "BudgetUnreadable", on "TenantPool";
    /// The label of its pool was removed, so that it left the pool.
    NODE_LEFT_POOL = "NodeLeftPool", on "Node";
    /// An object that Croft keeps in one of its namespaces was changed or deleted by hand, and is restored.
    OBJECT_RESTORED = "ObjectRestored", on "Tenant";
}
