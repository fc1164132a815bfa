//! Metrics.
//!
//! The labels `tenant` and `pool` have the names of existing objects only, and the series of an object go with it. `tenant`
//! is empty for a pool that several tenants use or none, `pool` for a pod that no pool is known to take. `template` has the names that
//! a pool's spec has at the time, of which there are at most five. No label has the name of a pod or node.

pub use croft_runtime::metric::Stability;
use croft_runtime::metrics;

/// Reason of a pending pod, in [`POOL_PENDING_PODS`]: a node was launched for it and hasn't taken it yet.
pub const NODE_IN_FLIGHT: &str = "NodeInFlight";
/// Reason of a pending pod: it fits a node that exists, and kube-scheduler hasn't bound it yet.
pub const NODE_EXISTS: &str = "NodeExists";
/// Reason of a pending pod: no scheduling run has considered it yet.
pub const NOT_PLANNED: &str = "NotPlanned";

metrics! {
/// Entries of the decision log that were written.
RECORD_ENTRIES = Beta Counter "croft_controller_record_entries" [];
/// Entries of the decision log that were dropped, since it could not be written for too long.
RECORD_LOST_ENTRIES = Beta Counter "croft_controller_record_lost_entries" [];
/// When the decision log was last written, since 1970; 0 before the first write.
RECORD_LAST_WRITE = Beta Gauge "croft_controller_record_last_write_timestamp" [] in Seconds;
/// Objects of the decision log and the ledger that the object store lacks. 0 without one.
RECORD_UNARCHIVED = Beta Gauge "croft_controller_record_unarchived_objects" [];
/// Segments of the decision log that were dropped, since the object store could not be written for too long.
RECORD_LOST_SEGMENTS = Beta Counter "croft_controller_record_lost_segments" [];
/// When the object store last had all of the decision log, since 1970; 0 without one, and on replicas that don't lead.
RECORD_LAST_ARCHIVED = Beta Gauge "croft_controller_record_last_archived_timestamp" [] in Seconds;
/// Cost of the hours that this process closed in the ledger, by purpose: used, daemonsets, headroom, idle, starting, or draining, and committed for the list price of what a commitment pays for. It grows once an hour.
LEDGER_COST = Beta Counter "croft_controller_ledger_cost_dollars" ["tenant", "pool", "purpose"];
/// The end of the last hour that is closed in the ledger, since 1970; 0 before the first.
LEDGER_CLOSED = Beta Gauge "croft_controller_ledger_closed_timestamp" [] in Seconds;
/// Writes and lists at the API server, by result.
API_CALLS = Stable Counter "croft_controller_api_calls" ["verb", "kind", "result"];
/// Answered calls to the cloud by the replica that leads, by result: ok, or the class of the error. A call that is repeated is counted once.
CLOUD_CALLS = Beta Counter "croft_controller_cloud_calls" ["call", "result"];
/// Actions that deciders asked for.
ACTIONS = Alpha Counter "croft_controller_actions" ["action"];
/// Pending pods that Croft may launch nodes for.
PENDING_PODS = Stable Gauge "croft_controller_pending_pods" [];
/// Pods that the last scheduling run left unschedulable.
UNSCHEDULABLE_PODS = Beta Gauge "croft_controller_unschedulable_pods" [];
/// NodeClaims.
NODECLAIMS = Stable Gauge "croft_controller_nodeclaims" [];
/// Nodes.
NODES = Stable Gauge "croft_controller_nodes" [];
/// 1 while this process leads.
LEADER = Stable Gauge "croft_controller_leader" [];
/// Scheduling runs.
SCHEDULING_RUNS = Alpha Counter "croft_controller_scheduling_runs" [];
/// Time of the solver, by the purpose of the plan: pods, replicas, or disruption.
SOLVE_DURATION = Beta Histogram "croft_controller_solve_duration" ["run"] in Seconds;
/// Gap of the last plan that launched instances to its lower bound: (cost - bound) / bound.
PLAN_GAP = Alpha Gauge "croft_controller_plan_gap_ratio" [];
/// Launches that ended, by outcome: Launched, or a reason of failed launches.
LAUNCHES = Beta Counter "croft_controller_launches" ["tenant", "pool", "outcome"];
/// Instances whose node never registered.
LAUNCHES_UNREGISTERED = Beta Counter "croft_controller_launches_unregistered" [];
/// Nodes that registered and weren't initialized in time.
LAUNCHES_UNINITIALIZED = Beta Counter "croft_controller_launches_uninitialized" [];
/// Pools that may not launch all of their offerings now, since nodes don't register or aren't initialized.
POOLS_IN_LAUNCH_BACKOFF = Beta Gauge "croft_controller_pools_in_launch_backoff" [];
/// Pods and headroom pods that the limits of the CroftConfig leave unschedulable.
PODS_HELD_BY_CLUSTER_LIMITS = Beta Gauge "croft_controller_pods_held_by_cluster_limits" [];
/// Plans that panicked, by their purpose: pods, replicas, disruption, or consolidation. The pools concerned have the condition PlanningFailed.
SOLVER_PANICS = Beta Counter "croft_controller_solver_panics" ["run"];
/// Instances whose termination was confirmed.
INSTANCES_TERMINATED = Beta Counter "croft_controller_instances_terminated" [];
/// Instances that messages of the interruption queue were about.
INTERRUPTIONS = Beta Counter "croft_controller_interruptions" [];
/// Instances of the cluster by the status check that they fail; no series while the cloud doesn't say.
FAILED_STATUS_CHECKS = Beta Gauge "croft_controller_failed_status_checks" ["check"];
/// Disruptions by reason and outcome: started, completed, rolled_back, or invalidated.
DISRUPTIONS = Beta Counter "croft_controller_disruptions" ["reason", "outcome"];
/// Nodes by the status and reason of the condition Consolidatable: which are to be removed, and what keeps the others.
NODES_CONSOLIDATION_STATUS = Alpha Gauge "croft_controller_nodes_consolidation_status" ["consolidatable", "reason"];
/// Savings of all consolidation commands that were started.
CONSOLIDATION_SAVED = Alpha Gauge "croft_controller_consolidation_saved_dollars_per_hour" [];
/// Duration of a reconcile pass.
RECONCILE_DURATION = Beta Histogram "croft_controller_reconcile_duration" [] in Seconds;
/// Price of the instances of all NodeClaims.
COST = Stable Gauge "croft_controller_cost_dollars_per_hour" [];
/// NodeClaims of the pool, and nodes of the pool without one.
POOL_NODES = Beta Gauge "croft_controller_pool_nodes" ["tenant", "pool"];
/// Price of the instances of the pool's NodeClaims.
POOL_COST = Beta Gauge "croft_controller_pool_cost_dollars_per_hour" ["tenant", "pool"];
/// NodeClaims of each template of the pool, if it has templates.
TEMPLATE_NODES = Beta Gauge "croft_controller_template_nodes" ["tenant", "pool", "template"];
/// Price of the instances of these NodeClaims.
TEMPLATE_COST = Beta Gauge "croft_controller_template_cost_dollars_per_hour" ["tenant", "pool", "template"];
/// 1 while voluntary disruption of the pool's nodes is paused, else 0.
POOL_DISRUPTION_PAUSED = Beta Gauge "croft_controller_pool_disruption_paused" ["tenant", "pool"];
/// 1 for each zone that `spec.zones` of the CroftConfig closes now, by its state: NoLaunches or Evacuate.
ZONES_CLOSED = Beta Gauge "croft_controller_zones_closed" ["zone", "state"];
/// Headroom pods of the pool by state: wanted, or placed on a node that exists or is in flight.
POOL_HEADROOM = Beta Gauge "croft_controller_pool_headroom_pods" ["tenant", "pool", "state"];
/// Pending pods by reason: a reason of pending pods, NodeInFlight (a node was launched for it), NodeExists (kube-scheduler is to bind it), or NotPlanned.
POOL_PENDING_PODS = Beta Gauge "croft_controller_pool_pending_pods" ["tenant", "pool", "reason"];
/// Since when the oldest pending pod is pending, since 1970; no series without a pending pod.
POOL_OLDEST_PENDING_POD = Beta Gauge "croft_controller_pool_oldest_pending_pod_timestamp" ["tenant", "pool"] in Seconds;
/// Evictions that the API server accepted, by the tenant of the pod and the pool of its node.
POOL_EVICTIONS = Beta Counter "croft_controller_pool_evictions" ["tenant", "pool"];
/// Time from a pod becoming pending to its binding, of pods for which a node was launched.
POD_TO_NODE_DURATION = Beta Histogram "croft_controller_pod_to_node_duration" ["tenant", "pool"] in Seconds;
/// Tenants with pods outside their pools, or with other pods inside them.
TENANTS_NOT_ISOLATED = Stable Gauge "croft_tenants_not_isolated" [];
/// Tenants whose rules aren't enforced everywhere.
TENANTS_NOT_READY = Stable Gauge "croft_tenants_not_ready" [];
/// Tenants without a limit on the cost of their nodes.
TENANTS_UNLIMITED = Beta Gauge "croft_tenants_unlimited" [];
/// Violations of isolation, by rule; `croft audit` lists each.
VIOLATIONS = Stable Gauge "croft_violations" ["rule"];
/// Objects whose newest version can't be read or breaks a rule of its CRD, by kind; the last good version stays in force.
INVALID_OBJECTS = Beta Gauge "croft_invalid_objects" ["kind"];
}
