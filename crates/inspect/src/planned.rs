//! The outcome of admission for one workload's pods.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    admission::{Outcome, Verdict},
    shortfall::Shortfall,
};

/// The outcome of admission for one workload's pods.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Its apiVersion, of an object of another controller's kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the workload, or Pod.
    pub kind: String,
    /// Its namespace; empty for a cluster-scoped object of another controller's kind.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Path of the pod template in an object of another controller's kind, such as `spec.template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Number of pods; absent for DaemonSets, where it depends on the nodes, and for other controllers' kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
    /// The tenant that the namespace belongs to.
    pub tenant: Option<String>,
    /// The pool that the pods will run in.
    pub pool: Option<String>,
    /// `unchanged`, `changed` or `denied`; `unknown` for an object of another controller's kind without a pod template.
    pub outcome: Cow<'static, str>,
    /// How its pods are admitted, if another controller than Kubernetes's own creates them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
    /// Why the pods are denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The changes as JSON Patch on the pod or the DaemonSet.
    pub patch: Value,
    /// Warnings of admission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The pods that stay pending for a limit, if that was asked for and there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
    /// The object before Croft's admission.
    #[serde(skip)]
    pub before: Value,
    /// The object after it.
    #[serde(skip)]
    pub after: Value,
}

impl Planned {
    /// Kind, namespace and name, for messages: `Deployment shop/web`. For another controller's kind with its group, since other
    /// groups have a Service or a Job, too, and with the path of the template.
    #[must_use]
    pub fn title(&self) -> String {
        let Self { api_version, kind, namespace, name, template, .. } = self;
        let group = api_version.as_deref().and_then(|version| version.split_once('/'));
        let mut title = group.map_or_else(|| kind.clone(), |(group, _)| format!("{kind}.{group}"));
        title.push(' ');
        if !namespace.is_empty() {
            title.push_str(namespace);
            title.push('/');
        }
        title.push_str(name);
        if let Some(template) = template {
            title.push_str(", ");
            title.push_str(template);
        }
        title
    }
}

/// The outcome for one object.
pub(crate) fn entry<T: Serialize>(
    kind: &str,
    pod: &Pod,
    pods: Option<usize>,
    before: &Value,
    verdict: Verdict<T>,
) -> Planned {
    let Verdict { outcome, tenant, pool, is_kept_out: _, warnings, patch } = verdict;
    let (name, message, after) = match outcome {
        Outcome::Unchanged => ("unchanged", None, before.clone()),
        Outcome::Changed(after) => ("changed", None, to_json(&after)),
        Outcome::Denied(message) => ("denied", Some(message), before.clone()),
    };
    Planned {
        api_version: None,
        kind: kind.to_owned(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        template: None,
        pods,
        tenant,
        pool,
        outcome: name.into(),
        note: None,
        message,
        patch,
        warnings,
        shortfall: None,
        before: before.clone(),
        after,
    }
}

pub(crate) fn to_json<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
