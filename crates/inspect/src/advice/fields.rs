//! Fields of objects that are constraints.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PodSpec};

use super::constraint::NodeLabel;

/// The value of a label in the node selector.
pub(super) fn in_selector(spec: &PodSpec, label: NodeLabel) -> Option<&str> {
    let mut selector = spec.node_selector.iter().flatten();
    selector.find(|(key, _)| label.is(key)).map(|(_, value)| value.as_str())
}

/// The first expression about a label in the required node affinity.
pub(super) fn in_affinity(spec: &PodSpec, label: NodeLabel) -> Option<&NodeSelectorRequirement> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let expressions = required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter());
    expressions.flatten().find(|wanted| label.is(&wanted.key))
}
