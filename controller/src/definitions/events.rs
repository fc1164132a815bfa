//! Reasons of Events.

use super::define;

define! { ALL:
/// Pod: a NodeClaim was created for it.
NOMINATED = "Nominated";
/// NodeClaim: its launch ended without an instance; the claim is deleted and its pods are planned again.
LAUNCH_FAILED = "LaunchFailed";
/// NodeClaim: it had no instance in time; the claim is deleted and its pods are planned again.
LAUNCH_TIMEOUT = "LaunchTimeout";
/// NodeClaim: its EC2NodeClass doesn't exist.
CLASS_NOT_FOUND = "ClassNotFound";
/// NodeClaim: its node didn't register in time; the instance is terminated.
REGISTRATION_TIMEOUT = "RegistrationTimeout";
/// NodeClaim: a node has the name of its instance's node, but another provider id.
NODE_MISMATCH = "NodeMismatch";
/// NodeClaim: labels of its node were changed, and are restored.
LABELS_RESTORED = "LabelsRestored";
/// NodeClaim: taints of its pool were removed from its node, and are restored.
TAINTS_RESTORED = "TaintsRestored";
/// NodeClaim: its Node was deleted; the instance is drained and terminated.
NODE_GONE = "NodeGone";
/// NodeClaim: its instance is gone; the claim is deleted and its pods are planned again.
INSTANCE_GONE = "InstanceGone";
/// NodeClaim: an eviction from its node was refused.
FAILED_DRAINING = "FailedDraining";
/// NodeClaim: replacements for its node are being launched.
DISRUPTION_STARTED = "DisruptionStarted";
/// NodeClaim: its replacements are ready or not needed; the node is being removed.
DISRUPTED = "Disrupted";
/// NodeClaim: its node should be removed or replaced, but something blocks that.
DISRUPTION_BLOCKED = "DisruptionBlocked";
/// NodeClaim: its disruption was rolled back; the node stays.
DISRUPTION_FAILED = "DisruptionFailed";
/// NodeClaim: its node is empty and is being removed.
EMPTY = "Empty";
/// NodeClaim: its node has not been Ready for too long and is being removed.
UNHEALTHY = "Unhealthy";
/// NodeClaim: the cloud takes its instance; its pods are being evicted.
INTERRUPTED = "Interrupted";
/// NodeClaim: a message about its instance is outdated and has no effect.
INTERRUPTION_IGNORED = "InterruptionIgnored";
/// NodeClaim: its pool has more nodes than `replicas`; the node is being removed.
SCALED_DOWN = "ScaledDown";
/// EC2NodeClass: an earlier finding is missing.
FINDINGS_MISSING = "FindingsMissing";
/// TenantPool: a disruption budget can't be read, so that no node is removed.
BUDGET_UNREADABLE = "BudgetUnreadable";
/// Node: the label of its pool was removed, so that it left the pool.
NODE_LEFT_POOL = "NodeLeftPool";
}
