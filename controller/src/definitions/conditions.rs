//! Condition types that only the controller uses, and the reasons of all its conditions.

use super::define;

define! { TYPES:
/// TenantPool: its EC2NodeClass can launch.
CLASS_READY = "ClassReady";
/// TenantPool: its requirements leave something to launch.
REQUIREMENTS_VALID = "RequirementsValid";
/// TenantPool: the cloud has capacity for an offering of the pool.
CAPACITY_AVAILABLE = "CapacityAvailable";
/// TenantPool: a pool with static capacity has its nodes.
REPLICAS_READY = "ReplicasReady";
/// TenantPool: its headroom has places.
HEADROOM_READY = "HeadroomReady";
/// TenantPool: Croft manages the nodes that it launched for the pool. Present only while it does not.
NODES_MANAGED = "NodesManaged";
/// TenantPool: its nodes register. Karpenter's name. Present only while launches fail to register.
NODE_REGISTRATION_HEALTHY = "NodeRegistrationHealthy";
/// TenantPool: the scheduler panics on its pods or nodes.
PLANNING_FAILED = "PlanningFailed";
/// TenantPool: the circuit breaker keeps nodes.
DISRUPTION_STOPPED = "DisruptionStopped";
/// TenantPool: its deletion waits.
DELETION_BLOCKED = "DeletionBlocked";
/// TenantPool: garbage collection is stopped, since too many instances have no NodeClaim.
COLLECTION_STOPPED = "CollectionStopped";
/// Tenant: no pod of the tenant runs outside its pools, and no other pod inside them.
ISOLATED = "Isolated";
}

define! { REASONS:
/// Launched: an attempt is recorded and sent.
LAUNCHING = "Launching";
/// Launched: the instance exists.
LAUNCHED = "Launched";
/// Launched: no offering of the claim has capacity.
NO_CAPACITY = "NoCapacity";
/// Registered, Initialized: the node is not that far yet.
WAITING = "Waiting";
/// Registered: the node carries the pool's labels.
REGISTERED = "Registered";
/// Initialized: the node is Ready, without startup taints and with its devices.
INITIALIZED = "Initialized";
/// Ready: everything holds.
READY = "Ready";
/// Ready of a NodeClaim: its instance isn't launched.
NOT_LAUNCHED = "NotLaunched";
/// Ready of a NodeClaim: its node isn't registered.
NOT_REGISTERED = "NotRegistered";
/// Ready of a NodeClaim: its node isn't initialized.
NOT_INITIALIZED = "NotInitialized";
/// Expired: the node is older than its pool's expireAfter.
TOO_OLD = "TooOld";
/// Drifted: the message lists the fields that changed since the launch.
FIELDS_CHANGED = "FieldsChanged";
/// InstanceTagged: the instance lacks the cluster's tag.
TAG_MISSING = "TagMissing";
/// InstanceTagged: the cluster's tag has another value.
TAG_OVERWRITTEN = "TagOverwritten";
/// InstanceTagged: the instance has the cluster's tag again.
TAGGED = "Tagged";
/// ClassReady: the EC2NodeClass is ready.
CLASS_READY_REASON = "ClassReady";
/// ClassReady: the EC2NodeClass doesn't exist.
CLASS_NOT_FOUND = "ClassNotFound";
/// ClassReady: the EC2NodeClass is not ready.
CLASS_NOT_READY = "ClassNotReady";
/// ClassReady: the EC2NodeClass hasn't been resolved yet.
CLASS_NOT_RESOLVED = "ClassNotResolved";
/// RequirementsValid, Ready: a field can't be read.
UNREADABLE = "Unreadable";
/// RequirementsValid: the offerings of the class are not known yet.
OFFERINGS_UNKNOWN = "OfferingsUnknown";
/// RequirementsValid: no instance type meets the requirements.
NO_INSTANCE_TYPE_MATCHES = "NoInstanceTypeMatches";
/// RequirementsValid, and event of a Pod: no node that Croft launches meets a requirement of the pool.
REQUIREMENT_NEVER_MET = "RequirementNeverMet";
/// RequirementsValid, SpecValid: it is.
VALID = "Valid";
/// ReplicasReady: every node is ready.
ALL_READY = "AllReady";
/// ReplicasReady, HeadroomReady: nodes or places are missing; the message says why.
INSUFFICIENT = "Insufficient";
/// ReplicasReady: the missing nodes are being launched.
IN_FLIGHT = "InFlight";
/// HeadroomReady: every headroom pod has a place.
RESERVED = "Reserved";
/// NodesManaged, Consolidatable: the pool's provisioner is not Croft.
PROVISIONED_ELSEWHERE = "ProvisionedElsewhere";
/// NodeRegistrationHealthy: rounds of launches ended without a registered node.
NODES_NOT_REGISTERING = "NodesNotRegistering";
/// NodeRegistrationHealthy: some offerings launched nodes that didn't register.
OFFERINGS_NOT_REGISTERING = "OfferingsNotRegistering";
/// PlanningFailed: the scheduler panicked.
SOLVER_PANICKED = "SolverPanicked";
/// DisruptionStopped: too many nodes are not Ready.
TOO_MANY_UNHEALTHY_NODES = "TooManyUnhealthyNodes";
/// DisruptionStopped: too many instances are missing.
TOO_MANY_MISSING_INSTANCES = "TooManyMissingInstances";
/// DisruptionStopped: rebalance recommendations for too many instances.
TOO_MANY_REBALANCE_RECOMMENDATIONS = "TooManyRebalanceRecommendations";
/// DisruptionStopped: too many instances have no NodeClaim.
TOO_MANY_UNCLAIMED_INSTANCES = "TooManyUnclaimedInstances";
/// CollectionStopped: too many instances have no NodeClaim.
TOO_MANY_ORPHANS = "TooManyOrphans";
/// DeletionBlocked: Tenants name the pool.
NAMED_BY_TENANTS = "NamedByTenants";
/// DeletionBlocked: nodes are being drained and terminated.
NODES_REMAINING = "NodesRemaining";
/// LimitsReached: limits keep nodes from being launched.
LAUNCHES_HELD = "LaunchesHeld";
/// LimitsReached: a limit is used up.
FULL = "Full";
/// LimitsReached: usage is below every limit.
WITHIN_LIMITS = "WithinLimits";
/// Consolidatable: its pods are moved once the replacement is ready.
REPLACING = "Replacing";
/// Consolidatable: the search found savings; the command is validated before it starts.
CONSOLIDATION_CANDIDATE = "ConsolidationCandidate";
/// Consolidatable: another command of its pool is in flight.
COMMAND_IN_FLIGHT = "CommandInFlight";
/// Accepted: the claims of the Tenant, or the label of the pool, hold.
ACCEPTED = "Accepted";
/// Accepted of a TenantPool: an older pool has its label.
LABEL_TAKEN = "LabelTaken";
/// Accepted of a TenantPool: the admission policies don't know its key yet.
KEY_NOT_IN_FORCE = "KeyNotInForce";
/// Accepted of a Tenant: its namespaceSelector can't be read.
INVALID_SELECTOR = "InvalidSelector";
/// Accepted of a Tenant: an older Tenant has claimed one of its namespaces.
NAMESPACE_CONFLICT = "NamespaceConflict";
/// Accepted of a Tenant: a pool doesn't exist or doesn't count.
POOL_NOT_FOUND = "PoolNotFound";
/// Ready of a Tenant: it isn't accepted.
NOT_ACCEPTED = "NotAccepted";
/// Ready of a Tenant: no replica of the webhook runs.
NO_WEBHOOK = "NoWebhook";
/// Ready of a Tenant: a replica of the webhook has not observed its generation.
WEBHOOK_BEHIND = "WebhookBehind";
/// Ready of a Tenant: a replica of the webhook has no valid certificate.
WEBHOOK_CERTIFICATE = "WebhookCertificate";
/// Ready of a Tenant: an admission policy is missing or of another version.
POLICIES_MISSING = "PoliciesMissing";
/// Ready of a Tenant: its namespaces or the policies' parameters are being written.
POLICIES_BEHIND = "PoliciesBehind";
/// Isolated: it is.
ISOLATED_REASON = "Isolated";
/// Isolated: nodes of its pools admit other pods.
NODES_OPEN = "NodesOpen";
/// Isolated: pods run outside their pools.
PODS_MISPLACED = "PodsMisplaced";
}
