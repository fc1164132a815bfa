//! DaemonSets with what admission adds to their pods: a node keeps room for what its agents will request, not for what their
//! templates say.

use std::collections::BTreeMap;

use croft_api::convert::pod_defaults;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::LimitRange, node::v1::RuntimeClass};
use kube::ResourceExt;

/// Namespace and name.
type Name = (String, String);

/// DaemonSets, and what their pods' requests depend on beside their templates.
#[derive(Debug, Default)]
pub(super) struct DaemonSets {
    pub(super) sets: BTreeMap<Name, Box<DaemonSet>>,
    pub(super) limit_ranges: BTreeMap<Name, Box<LimitRange>>,
    pub(super) runtime_classes: BTreeMap<String, Box<RuntimeClass>>,
}

impl DaemonSets {
    /// The DaemonSet with its pods' requests in the template. A RuntimeClass that isn't known, or contradicts the template,
    /// adds nothing: the API server refuses such pods.
    pub(super) fn planned(&self, set: &DaemonSet) -> DaemonSet {
        let mut set = set.clone();
        let namespace = set.namespace().unwrap_or_default();
        if let Some(pod) = set.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
            let first = (namespace.clone(), String::new());
            let own = self.limit_ranges.range(first..).take_while(|((of, _), _)| *of == namespace);
            pod_defaults::limit_ranges(pod, own.map(|(_, range)| &**range));
            let class = pod.runtime_class_name.as_ref().and_then(|name| self.runtime_classes.get(name));
            if let Some(class) = class {
                let template = pod.clone();
                if pod_defaults::runtime_class(pod, class).is_err() {
                    *pod = template;
                }
            }
        }
        set
    }
}
