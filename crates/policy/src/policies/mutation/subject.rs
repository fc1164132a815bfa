//! Where the fields of a pod are: in a pod, or in the template of a DaemonSet.
//!
//! Each provides the same variables: `selector`, `tolerations`, `hasTerms`, `terms`, `containers` and `annotated`. Of a template they
//! are what the tenant wrote, without what Croft added: see [`record`](super::record).

use crate::{
    definitions::{INJECTED_ANNOTATION, POOL_ANNOTATION},
    policies::policy::Variable,
};

/// The field of required node affinity.
pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// A kind of object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Pod,
    DaemonSet,
}

impl Subject {
    /// CEL: the spec of the pod.
    pub(super) const fn spec(self) -> &'static str {
        match self {
            Self::Pod => "object.spec",
            Self::DaemonSet => "object.spec.template.spec",
        }
    }

    /// The JSON Pointer of the spec.
    pub(super) const fn pointer(self) -> &'static str {
        match self {
            Self::Pod => "/spec",
            Self::DaemonSet => "/spec/template/spec",
        }
    }

    const fn annotations(self) -> &'static str {
        match self {
            Self::Pod => "object.metadata.?annotations",
            Self::DaemonSet => "object.spec.template.?metadata.?annotations",
        }
    }

    /// CEL: the pod names no node.
    pub(super) fn names_no_node(self) -> String {
        format!("{}.?nodeName.orValue('') == ''", self.spec())
    }

    /// CEL: the template's record of what Croft added.
    pub(super) fn record(self) -> String {
        format!("{}[?'{INJECTED_ANNOTATION}'].orValue('')", self.annotations())
    }

    /// CEL: the selector as it is in the object.
    pub(super) fn selector(self) -> String {
        format!("{}.?nodeSelector.orValue({{}})", self.spec())
    }

    /// CEL: the tolerations as they are in the object.
    pub(super) fn tolerations(self) -> String {
        format!("{}.?tolerations.orValue([])", self.spec())
    }

    fn required(self) -> String {
        format!("{}.?affinity.?nodeAffinity.?{REQUIRED}", self.spec())
    }

    /// CEL: the object has a required node affinity.
    pub(super) fn has_terms(self) -> String {
        format!("{}.hasValue()", self.required())
    }

    /// CEL: the terms as they are in the object.
    pub(super) fn terms(self) -> String {
        format!("{}.?nodeSelectorTerms.orValue([])", self.required())
    }

    /// The variable `containers`.
    pub(super) fn containers(self) -> Variable {
        ("containers", format!("{0}.containers + {0}.?initContainers.orValue([])", self.spec()))
    }

    /// CEL: the JSON Pointer of the expressions of the term whose index is the integer `n`.
    pub(super) fn expressions(self, n: &str) -> String {
        format!(
            "'{}/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/' + string({n}) + '/matchExpressions'",
            self.pointer()
        )
    }

    /// The variable `annotated`: the pool that the annotation of the pod names.
    pub(super) fn annotated(self) -> Variable {
        ("annotated", format!("{}[?'{POOL_ANNOTATION}'].orValue('')", self.annotations()))
    }
}

/// The variables of a pod.
pub(super) fn of_pod() -> Vec<Variable> {
    let pod = Subject::Pod;
    vec![
        ("selector", pod.selector()),
        ("tolerations", pod.tolerations()),
        ("hasTerms", pod.has_terms()),
        ("terms", pod.terms()),
        pod.containers(),
        pod.annotated(),
    ]
}
