//! DaemonSets with what admission adds to their pods: a node keeps room for what its agents will request, not for what their
//! templates say.

use std::collections::BTreeMap;

use croft_api::convert::pod_defaults;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::LimitRange, node::v1::RuntimeClass};
use kube::ResourceExt;

use super::snapshot::{Snapshot, full_name};

/// Namespace and name.
type Name = (String, String);

/// DaemonSets, and what their pods' requests depend on beside their templates.
#[derive(Debug, Default)]
pub(super) struct DaemonSets {
    sets: BTreeMap<Name, Box<DaemonSet>>,
    limit_ranges: BTreeMap<Name, Box<LimitRange>>,
    runtime_classes: BTreeMap<String, Box<RuntimeClass>>,
}

impl DaemonSets {
    /// The DaemonSet with its pods' requests in the template. A RuntimeClass that isn't known, or contradicts the template,
    /// adds nothing: the API server refuses such pods.
    fn planned(&self, set: &DaemonSet) -> DaemonSet {
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

impl Snapshot {
    pub(super) fn observe_daemon_set(&mut self, set: Box<DaemonSet>) {
        let name = (set.namespace().unwrap_or_default(), set.name_any());
        self.plan_daemon_set(&set);
        self.daemon_sets.sets.insert(name, set);
    }

    pub(super) fn remove_daemon_set(&mut self, namespace: String, name: String) {
        self.cluster.remove_daemonset(&namespace, &name);
        self.daemon_sets.sets.remove(&(namespace, name));
    }

    pub(super) fn observe_limit_range(
        &mut self,
        namespace: String,
        name: String,
        new: Option<Box<LimitRange>>,
    ) {
        let key = (namespace.clone(), name);
        let spec = new.as_ref().and_then(|range| range.spec.clone());
        let old = match new {
            Some(range) => self.daemon_sets.limit_ranges.insert(key, range),
            None => self.daemon_sets.limit_ranges.remove(&key),
        };
        if old.and_then(|old| old.spec) != spec {
            self.plan_daemon_sets(|set| set.namespace().as_deref() == Some(&namespace));
        }
    }

    pub(super) fn observe_runtime_class(&mut self, name: String, new: Option<Box<RuntimeClass>>) {
        match new {
            Some(class) => drop(self.daemon_sets.runtime_classes.insert(name.clone(), class)),
            None => drop(self.daemon_sets.runtime_classes.remove(&name)),
        }
        self.plan_daemon_sets(|set| {
            let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            pod.and_then(|pod| pod.runtime_class_name.as_ref()) == Some(&name)
        });
    }

    fn plan_daemon_sets(&mut self, concerns: impl Fn(&DaemonSet) -> bool) {
        let sets: Vec<Box<DaemonSet>> =
            self.daemon_sets.sets.values().filter(|set| concerns(set)).cloned().collect();
        for set in sets {
            self.plan_daemon_set(&set);
        }
    }

    fn plan_daemon_set(&mut self, set: &DaemonSet) {
        let read = self.cluster.upsert_daemonset(&self.daemon_sets.planned(set));
        self.record_problem("DaemonSet", &full_name(set), read);
    }
}
