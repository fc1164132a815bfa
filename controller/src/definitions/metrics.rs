//! Metrics.

use croft_runtime::metrics;

metrics! {
/// Writes and lists at the API server, by result.
API_CALLS = Counter "croft_controller_api_calls" ["verb", "kind", "result"];
/// Actions that deciders asked for.
ACTIONS = Counter "croft_controller_actions" ["action"];
/// Pending pods that Croft may launch nodes for.
PENDING_PODS = Gauge "croft_controller_pending_pods" [];
/// Pods that the last scheduling run left unschedulable.
UNSCHEDULABLE_PODS = Gauge "croft_controller_unschedulable_pods" [];
/// NodeClaims.
NODECLAIMS = Gauge "croft_controller_nodeclaims" [];
/// Nodes.
NODES = Gauge "croft_controller_nodes" [];
/// 1 while this process leads.
LEADER = Gauge "croft_controller_leader" [];
/// Scheduling runs.
SCHEDULING_RUNS = Counter "croft_controller_scheduling_runs" [];
/// Launches that ended without an instance.
LAUNCH_FAILURES = Counter "croft_controller_launch_failures" [];
/// Instances whose node never registered.
LAUNCHES_UNREGISTERED = Counter "croft_controller_launches_unregistered" [];
/// Pools that may not launch all of their offerings now, since nodes don't register.
POOLS_IN_LAUNCH_BACKOFF = Gauge "croft_controller_pools_in_launch_backoff" [];
/// Pods and headroom pods that the limits of the CroftConfig leave unschedulable.
PODS_HELD_BY_CLUSTER_LIMITS = Gauge "croft_controller_pods_held_by_cluster_limits" [];
/// Plans that panicked, by their purpose: pods, replicas, disruption, or consolidation. The pools concerned have the condition PlanningFailed.
SOLVER_PANICS = Counter "croft_controller_solver_panics" ["run"];
/// Instances whose termination was confirmed.
INSTANCES_TERMINATED = Counter "croft_controller_instances_terminated" [];
/// Instances that messages of the interruption queue were about.
INTERRUPTIONS = Counter "croft_controller_interruptions" [];
/// Disruptions by reason and outcome: started, completed, rolled_back, or invalidated.
DISRUPTIONS = Counter "croft_controller_disruptions" ["reason", "outcome"];
/// Nodes by the status and reason of the condition Consolidatable: which are to be removed, and what keeps the others.
NODES_CONSOLIDATION_STATUS = Gauge "croft_controller_nodes_consolidation_status" ["consolidatable", "reason"];
/// Savings of all consolidation commands that were started.
CONSOLIDATION_SAVED = Gauge "croft_controller_consolidation_saved_dollars_per_hour" [];
/// Duration of a reconcile pass.
RECONCILE_DURATION = Histogram "croft_controller_reconcile_duration" [] in Seconds;
/// Price of the instances of all NodeClaims.
COST = Gauge "croft_controller_cost_dollars_per_hour" [];
/// Tenants with pods outside their pools, or with other pods inside them.
TENANTS_NOT_ISOLATED = Gauge "croft_tenants_not_isolated" [];
/// Tenants whose rules aren't enforced everywhere.
TENANTS_NOT_READY = Gauge "croft_tenants_not_ready" [];
/// Tenants without a limit on the cost of their nodes.
TENANTS_UNLIMITED = Gauge "croft_tenants_unlimited" [];
/// Violations of isolation, by rule; `croft audit` lists each.
VIOLATIONS = Gauge "croft_violations" ["rule"];
/// Objects whose newest version can't be read or breaks a rule of its CRD, by kind; the last good version stays in force.
INVALID_OBJECTS = Gauge "croft_invalid_objects" ["kind"];
}
