//! Policy mode: pods and the templates of DaemonSets are changed by MutatingAdmissionPolicies, inside the API server.
//!
//! ```text
//!  policy.croft.dev/pools, croft.dev/pool of the namespace ─┐
//!  policy.croft.dev/keys, all-pools, ... of Croft's own ────┴─▶ tenancy ─▶ choice | keep_out ─▶ refusal
//!                                                                                  └─▶ patches
//! ```
//!
//! The rules are those of `rules`, written once more as CEL. Both kinds of policy share the variables: a
//! mutating policy can't refuse with a sentence, so it leaves what is refused unchanged, and a validating policy refuses
//! it with the value of `refusal`. A test compares every answer of the two implementations on the real API server.
//!
//! The policies act while [`MUTATION`](crate::definitions::parameter::MUTATION) says so, and on pods of DaemonSets always. The
//! webhook is then asked only about nodes that are named outright, which CEL can't look up.
//!
//! | file | owns |
//! |---|---|
//! | `subject.cel` | where a pod's fields are: in a pod, or in a template |
//! | `pod.cel` | a pod: what is asked for, and the patches |
//! | `daemonset.cel` | a template: what Croft added to it, what is asked for without that, and the patches |
//! | `tenancy.cel` | whether the namespace is a tenant's, and what is refused |
//! | `choice.cel` | the pool of a tenant's pod, and what pins the pod there |
//! | `fit.cel` | whether the nodes of a pool could hold the pod |
//! | `keep_out.cel` | the affinity that keeps a non-tenant pod off the pools |
//! | `joining_nodes` | label and taint of nodes that join a pool and that Croft didn't launch, in both modes |
//! | `kept_metadata` | what others write of Croft's metadata of namespaces, in both modes |
//! | `documents` | the policies and their bindings |
//!
//! `pod.cel` and `daemonset.cel` define the same variables: `selector`, `tolerations`, `hasTerms`, `terms`, `containers` and
//! `annotated`. Of a template they are what the tenant wrote, without what Croft added.

mod documents;
mod joining_nodes;
mod kept_metadata;

pub(super) use documents::validating;
pub use documents::{documents, version};
