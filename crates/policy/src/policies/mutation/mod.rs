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
//! | module | owns |
//! |---|---|
//! | `subject` | where a pod's fields are: in a pod, or in a template without what Croft added |
//! | `tenancy` | whether the namespace is a tenant's, and what is refused |
//! | `choice` | the pool of a tenant's pod, and what pins the pod there |
//! | `fit` | whether the nodes of a pool could hold the pod |
//! | `keep_out` | the affinity that keeps a non-tenant pod off the pools |
//! | `record` | what Croft added to a DaemonSet's template |
//! | `nodes` | label and taint of nodes that join a pool and that Croft didn't launch, in both modes |
//! | `namespaces` | what others write of Croft's metadata of namespaces, in both modes |
//! | `documents` | the policies and their bindings |

mod choice;
mod documents;
mod fit;
mod keep_out;
mod namespaces;
mod nodes;
mod record;
mod subject;
mod tenancy;

pub(super) use documents::validating;
pub use documents::{documents, version};
