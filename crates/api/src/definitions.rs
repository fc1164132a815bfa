//! Labels, annotations and finalizers of custom resources, each defined once with its documentation.
//!
//! Reference pages are generated from [`KEYS`]. Those of namespaces, nodes and pods are in [`croft_policy::definitions`].

use croft_policy::documented_keys;

documented_keys! {
    /// Every annotation and finalizer that this crate defines.
    pub const KEYS;

    /// Keeps a NodeClaim until its instance is terminated, and a Node until it is drained.
    Finalizer FINALIZER = "croft.dev/termination", on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// A hash of each field that the NodeClaim was launched with, by which drift is found.
    Annotation LAUNCHED_WITH = "croft.dev/launched-with", on "NodeClaims", by "the controller";
    /// The NodeClaims that this one replaces, separated by commas.
    Annotation REPLACES = "croft.dev/replaces", on "NodeClaims", by "the controller";
}
