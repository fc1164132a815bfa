//! The rules of Croft's admission: which pods may run on which nodes. No I/O, no clock.
//!
//! ```text
//!  Tenant, TenantPool, CroftConfig, Namespace, Node
//!        │ upsert                                   AdmissionReview (bytes)
//!        ▼                                                │ review::parse: borrowed, only the fields used
//!     Index ──snapshot──▶ Tenants ─────────────────▶ evaluate
//!                            │                            │
//!                            │                Outcome { rule, denial | patch, warnings, tenant, pool }
//!                            ├──▶ audit: violations of the invariant
//!                            └──▶ policies: the same rules as CEL, evaluated by the API server
//! ```
//!
//! ```
//! use croft_policy::{Config, Phase, Tenant, Tenants, evaluate, review};
//!
//! let (namespaces, pools) = (vec!["acme".to_owned()], vec!["gpu".to_owned()]);
//! let tenant = Tenant { name: "acme".to_owned(), namespaces, pools, ..Tenant::default() };
//! let tenants = Tenants::offline(Config::default(), vec![tenant], vec![], vec![], vec![]);
//! let body = br#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
//!     "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "other",
//!     "operation": "CREATE", "userInfo": {"username": "jane"}, "object": {"spec": {}}}}"#;
//! let request = review::parse(body)?;
//! let outcome = evaluate(&tenants, &request, Phase::Mutate);
//! assert!(outcome.allowed());
//! assert_eq!(outcome.tenant, None);
//! # Ok::<(), review::ReviewError>(())
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `request` | the AdmissionReview and borrowed views of its objects |
//! | `tenancy` | declarations, the index of namespaces and nodes, selectors and taints |
//! | `rules` | one file per kind of object |
//! | [`audit`] | violations among objects that exist |
//! | [`denial`], [`definitions`] | what users read: messages, and the names of rules, labels and annotations |
//! | [`policies`] | the rules that hold while Croft is down, as ValidatingAdmissionPolicies |
//!
//! The webhook, `croft admit`, `croft plan`, `croft audit` and the controller call the same functions, so that their
//! answers can't differ.
//!
//! The invariant: no pod of a tenant runs outside the tenant's pools; no other pod runs inside them unless shared.

pub mod audit;
pub mod definitions;
pub mod denial;
pub mod do_not_disrupt;
pub mod documented;
pub mod duration;
mod evaluate;
mod outcome;
pub mod patch;
pub mod policies;
mod request;
mod rules;
mod tenancy;

pub use definitions::{Rule, Violation};
pub use denial::Denial;
pub use evaluate::{Phase, evaluate};
pub use outcome::{Outcome, PoolSource};
pub use request::{
    amounts::ExtendedResources,
    review,
    text::{Map, Text},
    view,
};
pub use rules::{
    daemonset::plan_daemonset,
    namespace, node,
    pod::{lost_pins, plan_created, plan_pod, plan_recreated},
};
pub use tenancy::{
    created::Surplus,
    declarations,
    index::{Index, NamespaceTenancy, NodePools, Tenants},
    model::{
        self, Config, Mutation, Namespace, NamespaceCreation, Node, NonTenantPods, OnConflict, Owner, Pool,
        PoolTenants, Provisioner, Subject, Tenant,
    },
    node_template::{LabelRequirement, NodeTemplate},
    replica_status, selector, stored, taint,
};
