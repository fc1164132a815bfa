//! Events that Croft writes. Whoever may create Events in a namespace may write Croft's name into them.

use k8s_openapi::api::events::v1::Event;

/// The reporting controller of Croft's Events.
pub(crate) const CONTROLLER: &str = "croft.dev/controller";
/// The namespace of Events about cluster-scoped objects, which the API server insists on for a `regarding` without a namespace.
const CLUSTER_SCOPED: &str = "default";
/// The only namespaced kind that Croft writes Events about; they are in the object's namespace.
const NAMESPACED: &str = "Pod";

/// True if the Event says that Croft wrote it.
pub(crate) fn says_croft(event: &Event) -> bool {
    event.reporting_controller.as_deref() == Some(CONTROLLER)
}

/// True if Croft may have written an Event that says so: one about a node, a NodeClaim, a Tenant or another object of the cluster
/// isn't in a tenant's namespace, where the tenant's people can write it themselves.
pub(crate) fn is_possible(event: &Event) -> bool {
    let regarding = event.regarding.as_ref();
    let about = regarding.and_then(|object| object.namespace.as_deref()).unwrap_or_default();
    let kind = regarding.and_then(|object| object.kind.as_deref()).unwrap_or_default();
    let within = event.metadata.namespace.as_deref().unwrap_or_default();
    if kind == NAMESPACED { about == within } else { about.is_empty() && within == CLUSTER_SCOPED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_of_the_cluster_has_no_event_in_a_tenants_namespace() {
        for (within, kind, about, expected) in [
            ("bravo", "Pod", "bravo", true),
            ("default", "Pod", "default", true),
            ("default", "Node", "", true),
            ("default", "NodeClaim", "", true),
            ("bravo", "Node", "bravo", false),
            ("bravo", "node", "bravo", false),
            ("bravo", "Tenant", "", false),
            ("default", "Node", "default", false),
            ("bravo", "Pod", "alpha", false),
            ("bravo", "", "bravo", false),
        ] {
            let event: Event = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "e", "namespace": within},
                "eventTime": null,
                "regarding": {"kind": kind, "namespace": about, "name": "x"},
            }))
            .unwrap();
            assert_eq!(is_possible(&event), expected, "{kind} of {about:?} in {within}");
        }
    }
}
