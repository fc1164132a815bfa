//! The pods that users create, and the updates of them that the API server takes.
//!
//! A new symbol is an item of [`Alphabet`]: pods and updates are all combinations of its items.

use croft_policy::definitions::{POOL_NAME_LABEL, TEMPLATE_LABEL, UNREGISTERED_LABEL, UNREGISTERED_TAINT};
use serde_json::{Value, json};

use crate::declared::{NamespaceKind, OWN_KEY, POOL, TEMPLATE};
use crate::nodes::NODE;

/// The symbols of a pod's fields.
#[derive(Clone, Debug)]
pub struct Alphabet {
    /// Tolerations of pools' taints. A pod is created with one at most.
    pub of_pools: Vec<Value>,
    /// Tolerations of the taint with which Croft's nodes register. A pod is created with one at most.
    pub of_starting: Vec<Value>,
    /// Node selectors.
    pub selectors: Vec<Value>,
    /// Required terms of node affinities.
    pub terms: Vec<Value>,
    /// Gated pods are created with selectors and affinities too, not only given them by updates.
    pub gated_in_full: bool,
}

fn toleration(key: &str, operator: &str, effect: &str) -> Value {
    let mut toleration = json!({"operator": operator});
    if !key.is_empty() {
        toleration["key"] = json!(key);
    }
    if operator == "Equal" && key != UNREGISTERED_TAINT {
        toleration["value"] = json!(POOL);
    }
    if !effect.is_empty() {
        toleration["effect"] = json!(effect);
    }
    toleration
}

fn excludes(keys: &[&str]) -> Value {
    let expressions: Vec<Value> =
        keys.iter().map(|key| json!({"key": key, "operator": "DoesNotExist"})).collect();
    json!([{"matchExpressions": expressions}])
}

impl Alphabet {
    fn of(effects: &[&str], starting: Vec<Value>, gated_in_full: bool) -> Self {
        let keyed = [
            (OWN_KEY, "Exists"),
            (OWN_KEY, "Equal"),
            (POOL_NAME_LABEL, "Exists"),
            (POOL_NAME_LABEL, "Equal"),
        ];
        let keys = keyed.into_iter().chain([("", "Exists")]);
        let of_pools = keys
            .flat_map(|(key, operator)| effects.iter().map(move |effect| toleration(key, operator, effect)));
        let requires = |key: &str, operator: &str, values: Value| {
            let mut expression = json!({"key": key, "operator": operator});
            if !values.is_null() {
                expression["values"] = values;
            }
            json!([{"matchExpressions": [expression]}])
        };
        let kept_out = excludes(&[POOL_NAME_LABEL, UNREGISTERED_LABEL, OWN_KEY]);
        let open = requires("kubernetes.io/os", "Exists", Value::Null);
        Self {
            of_pools: of_pools.collect(),
            of_starting: starting,
            selectors: vec![
                json!({OWN_KEY: POOL}),
                json!({POOL_NAME_LABEL: POOL}),
                json!({UNREGISTERED_LABEL: "true"}),
            ],
            terms: vec![
                excludes(&[POOL_NAME_LABEL]),
                excludes(&[UNREGISTERED_LABEL]),
                excludes(&[POOL_NAME_LABEL, UNREGISTERED_LABEL]),
                excludes(&[POOL_NAME_LABEL, OWN_KEY]),
                kept_out.clone(),
                requires(UNREGISTERED_LABEL, "In", json!(["true"])),
                requires(OWN_KEY, "In", json!([POOL])),
                requires(POOL_NAME_LABEL, "NotIn", json!([POOL])),
                // A second term that nothing keeps out, and one that matches nothing.
                json!([kept_out[0], open[0]]),
                json!([{}]),
            ],
            gated_in_full,
        }
    }

    /// Tolerations of every effect alone, the name of a template, and gated pods with every other field.
    #[must_use]
    pub fn full() -> Self {
        let starting = [("Exists", ""), ("Exists", "NoExecute"), ("Equal", "NoExecute")];
        let starting = starting.map(|(operator, effect)| toleration(UNREGISTERED_TAINT, operator, effect));
        let mut full = Self::of(&["", "NoSchedule", "NoExecute"], starting.to_vec(), true);
        full.selectors.push(json!({TEMPLATE_LABEL: TEMPLATE}));
        full
    }

    /// Tolerations of all effects.
    #[must_use]
    pub fn small() -> Self {
        Self::of(&[""], vec![toleration(UNREGISTERED_TAINT, "Exists", "")], false)
    }

    /// The least with which every way in that was known can be written.
    #[must_use]
    pub fn tiny() -> Self {
        let mut tiny = Self::small();
        tiny.of_pools.retain(|toleration| toleration["operator"] == "Exists");
        tiny.selectors.retain(|selector| selector.get(UNREGISTERED_LABEL).is_some());
        tiny.terms.truncate(4);
        tiny
    }

    /// The specs of all pods that are created. Kubernetes' own fields are left out.
    #[must_use]
    pub fn created(&self) -> Vec<Value> {
        let mut specs = Vec::new();
        let none_or = |items: &[Value]| -> Vec<Option<Value>> {
            std::iter::once(None).chain(items.iter().cloned().map(Some)).collect()
        };
        for of_pools in none_or(&self.of_pools) {
            for of_starting in none_or(&self.of_starting) {
                let tolerations: Vec<Value> = [of_pools.clone(), of_starting].into_iter().flatten().collect();
                let mut plain = json!({});
                if !tolerations.is_empty() {
                    plain["tolerations"] = json!(tolerations);
                }
                for selector in none_or(&self.selectors) {
                    for terms in none_or(&self.terms) {
                        let is_plain = selector.is_none() && terms.is_none();
                        let mut spec = plain.clone();
                        if let Some(selector) = &selector {
                            spec["nodeSelector"] = selector.clone();
                        }
                        if let Some(terms) = terms {
                            spec["affinity"] = affinity(&terms);
                        }
                        if self.gated_in_full || is_plain {
                            let mut gated = spec.clone();
                            gated["schedulingGates"] = json!([{"name": "gate"}]);
                            specs.push(gated);
                        }
                        if is_plain {
                            let mut named = spec.clone();
                            named["nodeName"] = json!(NODE);
                            specs.push(named);
                        }
                        specs.push(spec);
                    }
                }
            }
        }
        specs
    }

    /// The specs that an update may make of `spec`, by the rules of Kubernetes: tolerations may be added; a gated pod may get
    /// selector entries and an affinity, and its gates may be removed. Narrower terms than there are aren't tried.
    #[must_use]
    pub fn updated(&self, spec: &Value) -> Vec<Value> {
        let mut specs = Vec::new();
        let held = spec["tolerations"].as_array().cloned().unwrap_or_default();
        let is_gated = spec.get("schedulingGates").is_some();
        let lifted = |mut spec: Value| {
            spec.as_object_mut().expect("a spec has fields").remove("schedulingGates");
            spec
        };
        for added in self.of_pools.iter().chain(&self.of_starting).filter(|added| !held.contains(added)) {
            let mut with = spec.clone();
            with["tolerations"] = json!([&held[..], std::slice::from_ref(added)].concat());
            if is_gated {
                specs.push(lifted(with.clone()));
            }
            specs.push(with);
        }
        if is_gated {
            specs.push(lifted(spec.clone()));
            for selector in &self.selectors {
                let (key, value) =
                    selector.as_object().and_then(|map| map.iter().next()).expect("it has an entry");
                if spec["nodeSelector"].get(key).is_none() {
                    let mut with = spec.clone();
                    with["nodeSelector"][key] = value.clone();
                    specs.push(with);
                }
            }
            for terms in self.terms.iter().filter(|_| spec.get("affinity").is_none()) {
                let mut with = spec.clone();
                with["affinity"] = affinity(terms);
                specs.push(with);
            }
        }
        specs
    }
}

fn affinity(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

/// A pod of the namespace with `spec`.
#[must_use]
pub fn pod(namespace: NamespaceKind, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": namespace.name()}, "spec": spec})
}

/// True if the pod names its node.
#[must_use]
pub fn names_node(spec: &Value) -> bool {
    spec.get("nodeName").is_some()
}
