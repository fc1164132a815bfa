//! The API server's built-in admission plugins that change where a pod is placed.
//!
//! LimitRanger, Priority, DefaultTolerationSeconds and RuntimeClass are enabled in every cluster. They run on pods, not on
//! templates, in this order (`AllOrderedPlugins` of `pkg/kubeapiserver/options`), and before Croft's webhook, which
//! therefore sees the tolerations of a RuntimeClass.

use croft_api::convert::pod_defaults;
use k8s_openapi::api::core::v1::{LimitRange, Pod, PodSpec, Toleration};

use crate::input::Input;

/// Seconds that a pod stays on a node that is not ready or unreachable, unless it has a toleration of its own
/// (`--default-not-ready-toleration-seconds` of the API server).
const DEFAULT_TOLERATION_SECONDS: i64 = 300;

/// The PriorityClasses that every cluster has (`pkg/apis/scheduling/types.go`).
const SYSTEM_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Applies the plugins to a pod that is about to be created.
///
/// `input` holds the LimitRanges, PriorityClasses and RuntimeClasses of the cluster.
///
/// ```
/// use croft_manifest::{LoadOptions, apply_admission_plugins, parse};
///
/// let text = "
/// {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
/// ---
/// {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priorityClassName: high, containers: [{name: a, image: a}]}}
/// ";
/// let input = parse("example.yaml", text, &LoadOptions::default())?;
/// let mut pod = input.pods.get("default", "a").ok_or("not read")?.object.clone();
/// apply_admission_plugins(&mut pod, &input)?;
/// assert_eq!(pod.spec.and_then(|spec| spec.priority), Some(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The API server's refusal in words: a PriorityClass or RuntimeClass that `input` doesn't have, or a node selector that
/// contradicts the RuntimeClass.
pub fn apply(pod: &mut Pod, input: &Input) -> Result<(), String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let ranges = input.limit_ranges.iter().map(|range| &range.object);
    let own: Vec<&LimitRange> =
        ranges.filter(|range| range.metadata.namespace.as_deref() == Some(&namespace)).collect();
    apply_with(pod, input, &own)
}

/// [`apply`] with `limit_ranges` as those of the pod's namespace.
///
/// # Errors
/// As [`apply`].
pub fn apply_with(pod: &mut Pod, input: &Input, limit_ranges: &[&LimitRange]) -> Result<(), String> {
    let Some(spec) = &mut pod.spec else { return Ok(()) };
    pod_defaults::limit_ranges(spec, limit_ranges.iter().copied());
    priority(spec, input)?;
    default_tolerations(spec);
    runtime_class(spec, input)
}

fn priority(spec: &mut PodSpec, input: &Input) -> Result<(), String> {
    let named = spec.priority_class_name.clone().filter(|name| !name.is_empty());
    let (value, policy) = match &named {
        Some(name) => {
            if let Some((_, value)) = SYSTEM_PRIORITIES.iter().find(|(n, _)| n == name) {
                (*value, None)
            } else {
                let class = input.priority_classes.get("", name).ok_or_else(|| {
                    format!("there is no PriorityClass {name}: add it to the input, or leave priorityClassName out")
                })?;
                (class.value.unwrap_or(0), class.preemption_policy.clone())
            }
        }
        None => {
            // Of several global defaults the lowest is used: plugin/pkg/admission/priority.
            let default = input
                .priority_classes
                .iter()
                .filter(|c| c.global_default == Some(true))
                .min_by_key(|c| c.value.unwrap_or(0));
            match default {
                Some(class) => {
                    spec.priority_class_name = class.metadata.name.clone();
                    (class.value.unwrap_or(0), class.preemption_policy.clone())
                }
                None => (0, None),
            }
        }
    };
    spec.priority = Some(value);
    if spec.preemption_policy.is_none() {
        spec.preemption_policy = Some(policy.unwrap_or_else(|| "PreemptLowerPriority".to_owned()));
    }
    Ok(())
}

fn runtime_class(spec: &mut PodSpec, input: &Input) -> Result<(), String> {
    let Some(name) = spec.runtime_class_name.clone().filter(|name| !name.is_empty()) else { return Ok(()) };
    let class = input.runtime_classes.get("", &name).ok_or_else(|| {
        format!("there is no RuntimeClass {name}: add it to the input, or leave runtimeClassName out")
    })?;
    pod_defaults::runtime_class(spec, class)
}

fn default_tolerations(spec: &mut PodSpec) {
    let own = spec.tolerations.get_or_insert_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = own.iter().any(|t| {
            let its_key = t.key.as_deref().unwrap_or_default();
            let effect = t.effect.as_deref().unwrap_or_default();
            (its_key == key || its_key.is_empty()) && matches!(effect, "" | "NoExecute")
        });
        if !covered {
            own.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some("NoExecute".to_owned()),
                toleration_seconds: Some(DEFAULT_TOLERATION_SECONDS),
                ..Toleration::default()
            });
        }
    }
}
