//! Condition types that only the controller uses, and the reasons of all its conditions.

use croft_api::documented_conditions;

use super::define;

documented_conditions! {
    /// Condition types that only the controller uses.
    pub const TYPES;

    /// Its EC2NodeClass can launch.
    CLASS_READY = "ClassReady", on "TenantPool";
    /// Its requirements leave something to launch.
    REQUIREMENTS_VALID = "RequirementsValid", on "TenantPool";
    /// The cloud has capacity for an offering of the pool.
    CAPACITY_AVAILABLE = "CapacityAvailable", on "TenantPool";
    /// A pool with static capacity has its nodes.
    REPLICAS_READY = "ReplicasReady", on "TenantPool";
    /// Its headroom has places.
    HEADROOM_READY = "HeadroomReady", on "TenantPool";
    /// Croft manages the nodes that it launched for the pool. Present only while it does not.
    NODES_MANAGED = "NodesManaged", on "TenantPool";
    /// Its nodes register and are initialized. Karpenter's name. Present only while launches fail to.
    NODE_REGISTRATION_HEALTHY = "NodeRegistrationHealthy", on "TenantPool";
    /// The scheduler panics on its pods or nodes.
    PLANNING_FAILED = "PlanningFailed", on "TenantPool";
    /// The circuit breaker keeps nodes.
    DISRUPTION_STOPPED = "DisruptionStopped", on "TenantPool";
    /// No voluntary disruption of its nodes starts, since it is paused. Present only while it is.
    DISRUPTION_PAUSED = "DisruptionPaused", on "TenantPool";
    /// One of its schedules holds. Present only while one does.
    SCHEDULE_IN_FORCE = "ScheduleInForce", on "TenantPool";
    /// Its deletion waits.
    DELETION_BLOCKED = "DeletionBlocked", on "TenantPool";
    /// Garbage collection is stopped, since too many instances have no NodeClaim.
    COLLECTION_STOPPED = "CollectionStopped", on "TenantPool";
    /// The API server has every feature of Kubernetes that Croft uses. Present only while its release lacks some; the
    /// message says what doesn't work.
    KUBERNETES_FEATURES = "KubernetesFeatures", on "TenantPool, CroftConfig";
    /// No pod of the tenant runs outside its pools, and no other pod inside them.
    ISOLATED = "Isolated", on "Tenant";
    /// The objects that it declares for its namespaces are there. Present only while it declares some.
    OBJECTS_KEPT = "ObjectsKept", on "Tenant";
    /// No more namespaces than the Tenant allows were created under the prefix of its owners. Present only while they may
    /// create some.
    NAMESPACE_CREATION = "NamespaceCreation", on "Tenant";
}

define! {
    /// Reasons of conditions.
    pub const REASONS;

    /// An attempt is recorded and sent.
    LAUNCHING = "Launching", on "Launched";
    /// The instance exists.
    LAUNCHED = "Launched", on "Launched";
    /// No offering of the claim has capacity.
    NO_CAPACITY = "NoCapacity", on "Launched";
    /// The node is not that far yet.
    WAITING = "Waiting", on "Registered, Initialized";
    /// The node carries the pool's labels.
    REGISTERED = "Registered", on "Registered";
    /// The node is Ready, without startup taints and with its devices.
    INITIALIZED = "Initialized", on "Initialized";
    /// Everything holds.
    READY = "Ready", on "Ready";
    /// Its instance isn't launched.
    NOT_LAUNCHED = "NotLaunched", on "Ready of a NodeClaim";
    /// Its node isn't registered.
    NOT_REGISTERED = "NotRegistered", on "Ready of a NodeClaim";
    /// Its node isn't initialized.
    NOT_INITIALIZED = "NotInitialized", on "Ready of a NodeClaim";
    /// The node is older than its pool's expireAfter.
    TOO_OLD = "TooOld", on "Expired";
    /// The message lists the fields that changed since the launch.
    FIELDS_CHANGED = "FieldsChanged", on "Drifted";
    /// The zone of the instance is evacuated, by `spec.zones` of the CroftConfig.
    ZONE_EVACUATED = "ZoneEvacuated", on "Drifted";
    /// `spec.zones` names zones that are closed now.
    DECLARED_BAD = "DeclaredBad", on "ZonesClosed";
    /// The instance lacks the cluster's tag.
    TAG_MISSING = "TagMissing", on "InstanceTagged, and event of a Node without a claim, or of a lost claim";
    /// The cluster's tag has another value.
    TAG_OVERWRITTEN = "TagOverwritten", on "InstanceTagged, and event of a Node without a claim, or of a lost claim";
    /// The instance has the cluster's tag again.
    TAGGED = "Tagged", on "InstanceTagged";
    /// A status check of the cloud fails; the message says which, and since when.
    STATUS_CHECK_FAILED = "StatusCheckFailed", on "InstanceHealthy";
    /// Every status check of the instance passes again.
    STATUS_CHECKS_PASS = "StatusChecksPass", on "InstanceHealthy";
    /// The EC2NodeClass is ready.
    CLASS_READY_REASON = "ClassReady", on "ClassReady";
    /// The EC2NodeClass doesn't exist.
    CLASS_NOT_FOUND = "ClassNotFound", on "ClassReady";
    /// The EC2NodeClass is not ready.
    CLASS_NOT_READY = "ClassNotReady", on "ClassReady";
    /// The EC2NodeClass hasn't been resolved yet.
    CLASS_NOT_RESOLVED = "ClassNotResolved", on "ClassReady";
    /// A field can't be read.
    UNREADABLE = "Unreadable", on "RequirementsValid, Ready";
    /// The offerings of the class are not known yet.
    OFFERINGS_UNKNOWN = "OfferingsUnknown", on "RequirementsValid";
    /// No instance type meets the requirements.
    NO_INSTANCE_TYPE_MATCHES = "NoInstanceTypeMatches", on "RequirementsValid";
    /// No node that Croft launches meets a requirement of the pool.
    REQUIREMENT_NEVER_MET = "RequirementNeverMet", on "RequirementsValid, and event of a Pod";
    /// It is.
    VALID = "Valid", on "RequirementsValid, SpecValid";
    /// Every node is ready.
    ALL_READY = "AllReady", on "ReplicasReady";
    /// Nodes or places are missing; the message says why.
    INSUFFICIENT = "Insufficient", on "ReplicasReady, HeadroomReady";
    /// The missing nodes are being launched.
    IN_FLIGHT = "InFlight", on "ReplicasReady";
    /// Every headroom pod has a place.
    RESERVED = "Reserved", on "HeadroomReady";
    /// The pool's provisioner is not Croft.
    PROVISIONED_ELSEWHERE = "ProvisionedElsewhere", on "NodesManaged, Consolidatable";
    /// Rounds of launches ended without a registered node.
    NODES_NOT_REGISTERING = "NodesNotRegistering", on "NodeRegistrationHealthy";
    /// Nodes of a template register, and aren't initialized in time.
    NODES_NOT_INITIALIZING = "NodesNotInitializing", on "NodeRegistrationHealthy";
    /// Some offerings launched nodes that didn't register.
    OFFERINGS_NOT_REGISTERING = "OfferingsNotRegistering", on "NodeRegistrationHealthy";
    /// The API server's release lacks features that Croft uses.
    RELEASE_TOO_OLD = "ReleaseTooOld", on "KubernetesFeatures";
    /// The scheduler panicked.
    SOLVER_PANICKED = "SolverPanicked", on "PlanningFailed";
    /// The pool's `disruption.paused` holds.
    PAUSED_BY_POOL = "PausedByPool", on "DisruptionPaused";
    /// The first of the pool's schedules whose time it is counts.
    SCHEDULED = "Scheduled", on "ScheduleInForce";
    /// The CroftConfig's `disruption.paused` holds.
    PAUSED_BY_CONFIG = "PausedByConfig", on "DisruptionPaused";
    /// Too many nodes are not Ready, are defective, or fail a status check of the cloud.
    TOO_MANY_UNHEALTHY_NODES = "TooManyUnhealthyNodes", on "DisruptionStopped";
    /// Too many nodes weren't initialized in time.
    TOO_MANY_UNINITIALIZED_NODES = "TooManyUninitializedNodes", on "DisruptionStopped";
    /// Too many instances are missing.
    TOO_MANY_MISSING_INSTANCES = "TooManyMissingInstances", on "DisruptionStopped";
    /// Rebalance recommendations for too many instances.
    TOO_MANY_REBALANCE_RECOMMENDATIONS = "TooManyRebalanceRecommendations", on "DisruptionStopped";
    /// Too many instances have no NodeClaim.
    TOO_MANY_UNCLAIMED_INSTANCES = "TooManyUnclaimedInstances", on "DisruptionStopped";
    /// Too many instances have no NodeClaim.
    TOO_MANY_ORPHANS = "TooManyOrphans", on "CollectionStopped";
    /// Tenants name the pool.
    NAMED_BY_TENANTS = "NamedByTenants", on "DeletionBlocked";
    /// No Tenant names the pool, but one that is being replaced may again within a few seconds.
    TENANT_MAY_RETURN = "TenantMayReturn", on "DeletionBlocked";
    /// Nodes are being drained and terminated, or may exist without a NodeClaim.
    NODES_REMAINING = "NodesRemaining", on "DeletionBlocked";
    /// Limits keep nodes from being launched.
    LAUNCHES_HELD = "LaunchesHeld", on "LimitsReached";
    /// A limit is used up.
    FULL = "Full", on "LimitsReached";
    /// Usage is below every limit.
    WITHIN_LIMITS = "WithinLimits", on "LimitsReached";
    /// Its pods are moved once the replacement is ready.
    REPLACING = "Replacing", on "Consolidatable";
    /// The search found savings; the command is validated before it starts.
    CONSOLIDATION_CANDIDATE = "ConsolidationCandidate", on "Consolidatable";
    /// Another command of its pool is in flight.
    COMMAND_IN_FLIGHT = "CommandInFlight", on "Consolidatable";
    /// The claims of the Tenant, or the label of the pool, hold.
    ACCEPTED = "Accepted", on "Accepted";
    /// An older pool has its label, or a template would give its nodes the label of another pool.
    LABEL_TAKEN = "LabelTaken", on "Accepted of a TenantPool";
    /// The admission policies don't know its label yet.
    KEY_NOT_IN_FORCE = "KeyNotInForce", on "Accepted of a TenantPool";
    /// A pod that waits since before the pool could be bound to its nodes.
    OPEN_TO_WAITING_PODS = "OpenToWaitingPods", on "Accepted of a TenantPool";
    /// Its namespaceSelector can't be read.
    INVALID_SELECTOR = "InvalidSelector", on "Accepted of a Tenant";
    /// An older Tenant has claimed one of its namespaces.
    NAMESPACE_CONFLICT = "NamespaceConflict", on "Accepted of a Tenant";
    /// A pool doesn't exist or doesn't count.
    POOL_NOT_FOUND = "PoolNotFound", on "Accepted of a Tenant";
    /// It isn't accepted.
    NOT_ACCEPTED = "NotAccepted", on "Ready of a Tenant";
    /// No replica of the webhook runs.
    NO_WEBHOOK = "NoWebhook", on "Ready of a Tenant";
    /// A replica of the webhook has not observed its generation.
    WEBHOOK_BEHIND = "WebhookBehind", on "Ready of a Tenant";
    /// A replica of the webhook has no valid certificate, or API servers don't ask it.
    WEBHOOK_CERTIFICATE = "WebhookCertificate", on "Ready of a Tenant";
    /// An admission policy is missing or of another version.
    POLICIES_MISSING = "PoliciesMissing", on "Ready of a Tenant";
    /// The API server doesn't evaluate the mutating policies of this version.
    MUTATING_POLICIES_MISSING = "MutatingPoliciesMissing", on "MutationInForce";
    /// Policies inside the API server change pods and DaemonSets.
    BY_POLICY = "ByPolicy", on "MutationInForce";
    /// The other mode is still in force.
    SWITCHING_MODE = "SwitchingMode", on "MutationInForce";
    /// Its namespaces or the policies' parameters are being written.
    POLICIES_BEHIND = "PoliciesBehind", on "Ready of a Tenant";
    /// It is.
    ISOLATED_REASON = "Isolated", on "Isolated";
    /// Nodes of its pools admit other pods.
    NODES_OPEN = "NodesOpen", on "Isolated";
    /// Every object is as declared.
    IN_PLACE = "InPlace", on "ObjectsKept";
    /// Owners may create more namespaces.
    BELOW_MAXIMUM = "BelowMaximum", on "NamespaceCreation";
    /// Owners have created as many namespaces as they may.
    MAXIMUM_REACHED = "MaximumReached", on "NamespaceCreation";
    /// Namespaces beyond the maximum stay without pools and roles.
    ABOVE_MAXIMUM = "AboveMaximum", on "NamespaceCreation";
    /// Objects are being written.
    OBJECTS_BEHIND = "ObjectsBehind", on "ObjectsKept";
    /// A namespace has an object of others with the name of one that Croft would create.
    NAME_TAKEN = "NameTaken", on "ObjectsKept";
    /// The API server refused an object, for instance a binding of a role that the controller may not bind.
    OBJECTS_REFUSED = "ObjectsRefused", on "ObjectsKept";
    /// Pods run outside their pools.
    PODS_MISPLACED = "PodsMisplaced", on "Isolated";
}
