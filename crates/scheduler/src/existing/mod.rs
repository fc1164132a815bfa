//! Placement onto nodes that exist, then onto those that are coming.
//!
//! In go the demand, the topology groups with the pods that run already, and the room of each node. Out come the places that get
//! pods, the groups with those pods counted, and how many pods of each class are left, for which instances are packed.
//!
//! A run has these steps. Begin with `placement`, which has them in order:
//!
//! 1. The nodes that suit a class by labels and taints, by name; those with a PreferNoSchedule taint that it doesn't tolerate
//!    come last.
//! 2. Class by class in the order of kube-scheduler's queue: on each of these nodes as many pods as resources, ports, volumes and
//!    constraints between pods allow. Classes that spread go to the domain with the fewest of them, one pod at a time.
//! 3. The same again for classes with affinity or spreads, since pods placed since then may allow more of them, until nothing changes.
//! 4. The same on coming nodes.
//!
//! A placement must hold in whatever order kube-scheduler binds the pods. A pod that would keep another planned one out, or take
//! the last room beside an affinity target, is held off; `solve` lets it in again if that was in vain.
//!
//! # Example
//!
//! Node `a` has three cores left, node `b` two and a PreferNoSchedule taint, and the coming node `claim-c` will have four. `cache`
//! has required affinity over hostnames to `web`, and comes before nine pods `web` in the queue. Each pod asks for one core.
//!
//! | step | pods | place | reason |
//! |---|---|---|---|
//! | 2 | `cache` | none yet | No node has a pod `web`. |
//! | 2 | `web` | two on `a`, two on `b` | `a` comes first, since it has no such taint. A third pod there would take the last room for `cache` beside a pod `web`. |
//! | 3 | `cache` | `a` | It has affinity, so that it is tried again. |
//! | 4 | `web` | four on `claim-c` | Coming nodes come after those that exist. |
//! | | `web` | one left | An instance is launched for it. |
//!
//! ```
//! use std::sync::Arc;
//!
//! use croft_scheduler::{Catalog, Cluster, ComingNode, Options, Pool, PodKey, solve};
//! use serde_json::{Value, json};
//!
//! fn pod(app: &str, number: usize, mut spec: Value) -> Value {
//!     spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]);
//!     let name = format!("{app}-{number}");
//!     json!({"metadata": {"namespace": "shop", "name": name, "labels": {"app": app}}, "spec": spec})
//! }
//!
//! fn node(name: &str, cpu: &str, taints: Value) -> Value {
//!     json!({
//!         "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "node-pool": "default"}},
//!         "spec": {"taints": taints},
//!         "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
//!     })
//! }
//!
//! let catalog: Catalog = serde_json::from_value(json!({"instanceTypes": [{
//!     "name": "m.4", "arch": "amd64", "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
//!     "offerings": [{"zone": "z", "capacityType": "on-demand", "price": 0.2}],
//! }]}))?;
//! let coming = ComingNode {
//!     claim: "claim-c".to_owned(),
//!     labels: [("node-pool".to_owned(), "default".to_owned())].into(),
//!     allocatable: catalog.instance_types[0].allocatable(),
//!     ..ComingNode::default()
//! };
//! let mut cluster = Cluster::new();
//! cluster.upsert_pool(Pool {
//!     name: "default".to_owned(),
//!     key: "node-pool".to_owned(),
//!     value: "default".to_owned(),
//!     instance_types: Arc::from(catalog.instance_types),
//!     launches: true,
//!     ..Pool::default()
//! })?;
//! cluster.upsert_node(&serde_json::from_value(node("a", "3", json!([])))?)?;
//! let taints = json!([{"key": "old", "effect": "PreferNoSchedule"}]);
//! cluster.upsert_node(&serde_json::from_value(node("b", "2", taints))?)?;
//! cluster.upsert_coming(coming);
//!
//! let beside_web = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
//!     {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
//! ]}}});
//! cluster.upsert_pod(&serde_json::from_value(pod("cache", 0, beside_web))?)?;
//! for number in 0..9 {
//!     cluster.upsert_pod(&serde_json::from_value(pod("web", number, json!({})))?)?;
//! }
//!
//! let plan = solve(&cluster, &Options::default(), &|| false);
//! let count = |pods: &[PodKey], app: &str| pods.iter().filter(|pod| pod.name.starts_with(app)).count();
//! let existing = plan.existing.iter().map(|place| (place.node.as_str(), &place.pods));
//! let launched = plan.instances.iter().map(|instance| (instance.instance_type.as_str(), &instance.pods));
//! let places: Vec<_> =
//!     existing.chain(launched).map(|(place, pods)| (place, count(pods, "web"), count(pods, "cache"))).collect();
//! assert_eq!(places, [("a", 2, 1), ("b", 2, 0), ("claim-c", 4, 0), ("m.4", 1, 0)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! | file | question that it answers |
//! |---|---|
//! | `placement` | which pods go to which node, in which order |
//! | `rules` | how many more pods the constraints between pods allow on a node |
//! | `host_counts` | from which minimum a spread over hostnames measures the skew |
//! | `room` | what resources, ports and volumes a node has left |
//! | `emptiest_node` | which node kube-scheduler would choose for a pod without a nomination |
//! | `cache` | what several solves of one cluster need not compute again |

pub(crate) mod cache;
pub(crate) mod emptiest_node;
pub(crate) mod host_counts;
pub(crate) mod placement;
pub(crate) mod room;
pub(crate) mod rules;
