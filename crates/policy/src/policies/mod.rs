//! The rules that hold while Croft is down: ValidatingAdmissionPolicies, and in Policy mode MutatingAdmissionPolicies,
//! evaluated by the API server itself.
//!
//! ```text
//!  documents() ──files──▶ policies and their bindings, which never change
//!  Declarations ──keys, exempt namespaces, claims──▶ parameters() ─────────▶ annotations of Croft's own Namespace
//!  Declarations ──pools of a tenant────────────────▶ namespace_metadata() ─▶ annotations and label of each namespace
//! ```
//!
//! The policies are static files, so that applying the manifests again changes nothing. They read a tenant's pools from
//! the namespace, so that a pod costs the same with one tenant and with ten thousand. They read what holds for the whole
//! cluster from [`parameters`](mod@parameters).
//!
//! The rule for tenants' pods, and every rule for the built-in key, needs no parameter: those hold even without Croft's
//! own Namespace. CEL can't look up the pool of a node; only the webhook checks node names.
//!
//! A module says which policies there are, when each is asked, and which snippets it is made of. The CEL itself, with the reasons
//! for it, is in the `.cel` file beside the module. `cel` has their form; `shared.cel` what all of them may use.
//!
//! `xtask` writes the files, the controller writes what they read, and the CLI looks for them in a cluster.

mod cel;
mod constants;
mod documents;
mod identities;
mod in_force;
pub mod mutation;
mod namespace_metadata;
mod namespaces;
mod nodes;
pub mod parameters;
pub mod pod_security;
mod pods;
mod policy;

pub use documents::{documents, names};
pub use namespace_metadata::{MetadataEntries, missing_pool, namespace_metadata, pool_label};
pub use namespaces::NAMESPACE_CREATION_POLICY;
pub use parameters::parameters;
pub use pods::is_kept_out;
pub use policy::{BREAK_GLASS_SUBJECT, BREAK_GLASS_VERB};
