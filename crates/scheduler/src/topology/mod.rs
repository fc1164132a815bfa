//! Topology spread, pod affinity and anti-affinity: which domain each pod goes to, decided by counting before packing.
//!
//! # Example
//!
//! Twelve pods, zones `a` and `b` at equal prices. `db` selects nodes of zone `a`, `backup` has required anti-affinity to `db` over
//! zones, and ten pods `web` have a hard spread over zones with `maxSkew: 1`.
//!
//! | order | class | domain | reason |
//! |---|---|---|---|
//! | 1 | `backup` | `b` | Anti-affinity chooses first. Zone `a` would exclude `db`, which has no other zone. |
//! | 2 | `db` | `a` | The only zone that its node selector allows. It is counted by the anti-affinity and has no constraint between pods itself. |
//! | 3 | `web` | five in `a`, five in `b` | Spreads choose last, pod by pod: each goes to the zone with fewer matching pods. |
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc};
//!
//! use croft_scheduler::{
//!     CapacityType, Cluster, InstanceType, Offering, Options, Pool, Price, Resources, solve,
//! };
//! use serde_json::{Value, json};
//!
//! const ZONE: &str = "topology.kubernetes.io/zone";
//!
//! /// A pod of one core with the label `app`; `spec` has its constraints.
//! fn pod(app: &str, number: usize, mut spec: Value) -> serde_json::Result<k8s_openapi::api::core::v1::Pod> {
//!     spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]);
//!     let name = format!("{app}-{number}");
//!     serde_json::from_value(json!({
//!         "metadata": {"namespace": "default", "name": name, "labels": {"app": app}},
//!         "spec": spec,
//!     }))
//! }
//!
//! let mut capacity = Resources::new();
//! for (name, amount) in [("cpu", "8"), ("memory", "16Gi"), ("pods", "110")] {
//!     capacity.set_quantity(name, amount.parse()?);
//! }
//! let offering = |zone: &str| Offering {
//!     zone: zone.to_owned(),
//!     capacity_type: CapacityType::OnDemand,
//!     price: Price::from_dollars(0.4),
//!     available: true,
//!     estimated: false,
//!     available_count: None,
//! };
//! let instance_type = InstanceType {
//!     name: "m.8".to_owned(),
//!     arch: "amd64".to_owned(),
//!     os: vec!["linux".to_owned()],
//!     capacity,
//!     overhead: Resources::new(),
//!     labels: BTreeMap::new(),
//!     attach_limits: BTreeMap::new(),
//!     offerings: vec![offering("a"), offering("b")],
//! };
//! let mut cluster = Cluster::new();
//! cluster.upsert_pool(Pool {
//!     name: "default".to_owned(),
//!     key: "node-pool".to_owned(),
//!     value: "default".to_owned(),
//!     instance_types: Arc::from([instance_type]),
//!     launches: true,
//!     ..Pool::default()
//! })?;
//!
//! cluster.upsert_pod(&pod("db", 0, json!({"nodeSelector": {ZONE: "a"}}))?)?;
//! let selector = |app: &str| json!({"matchLabels": {"app": app}});
//! cluster.upsert_pod(&pod("backup", 0, json!({"affinity": {"podAntiAffinity": {
//!     "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": selector("db")}],
//! }}}))?)?;
//! for number in 0..10 {
//!     cluster.upsert_pod(&pod("web", number, json!({"topologySpreadConstraints": [{
//!         "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector("web"),
//!     }]}))?)?;
//! }
//!
//! let plan = solve(&cluster, &Options::default(), &|| false);
//! let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
//! for instance in &plan.instances {
//!     for pod in &instance.pods {
//!         let (app, _) = pod.name.rsplit_once('-').ok_or("a name without a number")?;
//!         *counts.entry((&instance.zone, app)).or_default() += 1;
//!     }
//! }
//! let expected = [(("a", "db"), 1), (("a", "web"), 5), (("b", "backup"), 1), (("b", "web"), 5)];
//! assert_eq!(counts, BTreeMap::from(expected));
//! assert!(plan.unschedulable.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! | file | question that it answers |
//! |---|---|
//! | `domains` | which domain sets a class may choose, and which of their domains a spread counts |
//! | `groups` | how many pods each selector matches in each domain, and which groups constrain or count a class |
//! | `assignment` | which domain set each pod gets, in which order |
//! | `constraint_tracker` | which other classes a placement would exclude or violate |
//! | `preferences` | which of several places of equal cost a pod prefers |

pub(crate) mod assignment;
pub(crate) mod constraint_tracker;
pub(crate) mod domains;
pub(crate) mod groups;
pub(crate) mod preferences;
