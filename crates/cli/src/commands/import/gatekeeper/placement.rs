//! The pools that node selector and tolerations of a set of mutations lead to.

use std::cmp::Reverse;

use croft_api::definitions::KARPENTER_POOL_LABELS;
use serde_json::{Map, Value, json};

use super::mutation::{Change, Mutation};
use crate::{
    commands::import::{
        note::Note,
        pools::{HardTaint, NodeDraft, NodeFacts, PoolDraft},
    },
    croft_object::text,
};

/// Domains of labels that describe an instance or its place, whatever its pool.
const DESCRIBE: &[&str] =
    &["kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws", "eks.amazonaws.com"];
/// Labels by which a provisioner marks the nodes of its pools.
const OF_POOLS: &[&str] = &KARPENTER_POOL_LABELS;

/// The sum of several mutations.
#[derive(Default)]
pub(super) struct Written {
    /// Keys and values of the node selector, those that were written last first.
    pins: Vec<(String, String)>,
    tolerations: Vec<Value>,
}

impl Written {
    /// The sum of `mutations`, in the order in which Gatekeeper applies them. Notes say which override others.
    pub(super) fn by<'m>(mutations: impl Iterator<Item = &'m Mutation>, notes: &mut Vec<Note>) -> Self {
        let mut written = Self::default();
        for Mutation { title, change, .. } in mutations {
            match change {
                Change::Selector { is_whole, pins } => {
                    let is_replaced = |pin: &(String, String)| {
                        let new = pins.iter().find(|new| new.0 == pin.0);
                        new.map_or(*is_whole, |new| new.1 != pin.1)
                    };
                    for (key, value) in written.pins.iter().filter(|pin| is_replaced(pin)) {
                        notes.push(Note::change(format!(
                            "{title} overrides the {key}={value} of an earlier one, as Gatekeeper did"
                        )));
                    }
                    written.pins.retain(|pin| !*is_whole && pins.iter().all(|new| new.0 != pin.0));
                    written.pins.splice(0..0, pins.iter().cloned());
                }
                Change::Tolerations { is_whole, tolerations } => {
                    for old in
                        written.tolerations.iter().filter(|old| *is_whole && !tolerations.contains(old))
                    {
                        notes.push(Note::change(format!(
                            "{title} overrides the toleration {old} of an earlier one, as Gatekeeper did"
                        )));
                    }
                    if *is_whole {
                        written.tolerations.clear();
                    }
                    written.tolerations.extend(tolerations.iter().cloned());
                }
            }
        }
        written
    }

    /// The text of a note about it.
    pub(super) fn text(&self) -> String {
        let pins: Map<String, Value> =
            self.pins.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        json!({"nodeSelector": pins, "tolerations": self.tolerations}).to_string()
    }

    /// The pools of which pods with these fields may use the nodes, as places in `pools`; a pool of another provisioner is added to
    /// these if none of them is meant. `None` if the fields choose no pool.
    pub(super) fn pools(
        &self,
        pools: &mut Vec<PoolDraft>,
        sources: &str,
        notes: &mut Vec<Note>,
    ) -> Option<Vec<usize>> {
        let chosen = match self.eligible(pools) {
            chosen if chosen.is_empty() => self.by_one_label(pools, sources)?,
            chosen => chosen,
        };
        let of = |at: &usize| pools.get(*at);
        for (key, value) in &self.pins {
            if !chosen.iter().filter_map(of).all(|pool| is_certain(pool, key, value)) {
                notes.push(Note::loss(format!(
                    "the node selector {key}={value} isn't carried over: write it into the pool's requirements, or into the pods"
                )));
            }
        }
        for toleration in &self.tolerations {
            if !chosen.iter().filter_map(of).any(|pool| is_written_by_croft(toleration, pool)) {
                let text = format!("a toleration isn't carried over, write it into the pods: {toleration}");
                notes.push(Note::loss(text));
            }
        }
        Some(chosen)
    }

    /// Pools whose nodes have what the node selector asks for; of these, the ones whose taints are tolerated, if there are any.
    fn eligible(&self, pools: &[PoolDraft]) -> Vec<usize> {
        let has_label = |facts: &NodeFacts| {
            let mut identifying = self.pins.iter().filter(|(key, _)| !describes(key));
            identifying.any(|(key, value)| may_have(facts, key, value) == Some(true))
        };
        let is_possible = |facts: &NodeFacts| {
            let mut pins = self.pins.iter();
            pins.all(|(key, value)| may_have(facts, key, value).unwrap_or_else(|| describes(key)))
        };
        let is_selected = |nodes: &&NodeDraft| has_label(&nodes.facts) && is_possible(&nodes.facts);
        let is_tolerated = |nodes: &NodeDraft| {
            let mut taints = nodes.facts.taints.iter();
            taints.all(|taint| self.tolerations.iter().any(|one| tolerates(one, taint)))
        };
        let all = || pools.iter().enumerate().filter(|(_, pool)| pool.nodes.iter().any(|n| is_selected(&n)));
        let tolerated = all().filter(|(_, pool)| pool.nodes.iter().filter(is_selected).any(is_tolerated));
        let mut found: Vec<(usize, &PoolDraft)> = tolerated.collect();
        if found.is_empty() {
            found = all().collect();
        }
        // The first is the default: Karpenter tried pools by weight.
        found.sort_by_key(|(_, pool)| Reverse(pool.weight()));
        found.into_iter().map(|(at, _)| at).collect()
    }

    /// Of several keys the pool's is one that is tolerated as well.
    fn by_one_label(&self, pools: &mut Vec<PoolDraft>, sources: &str) -> Option<Vec<usize>> {
        let identifying =
            || self.pins.iter().filter(|(key, _)| !describes(key) && !OF_POOLS.contains(&key.as_str()));
        let is_tolerated = |(key, value): &&(String, String)| {
            ["NoSchedule", "NoExecute"].iter().any(|effect| {
                let taint =
                    HardTaint { key: key.clone(), value: value.clone(), effect: (*effect).to_owned() };
                self.tolerations.iter().any(|one| tolerates(one, &taint))
            })
        };
        let (key, value) = identifying().find(is_tolerated).or_else(|| identifying().next())?;
        let same: Vec<usize> = (0..)
            .zip(pools.iter())
            .filter(|(_, pool)| pool.has_label(key, value))
            .map(|(at, _)| at)
            .collect();
        if !same.is_empty() {
            return Some(same);
        }
        let mut effects: Vec<String> = Vec::new();
        for toleration in &self.tolerations {
            let effect = text(toleration, "effect");
            let taint = HardTaint { key: key.clone(), value: value.clone(), effect: effect.to_owned() };
            if matches!(effect, "NoSchedule" | "NoExecute") && tolerates(toleration, &taint) {
                effects.push(effect.to_owned());
            }
        }
        effects.sort_unstable();
        effects.dedup();
        if effects.is_empty() {
            effects.push("NoSchedule".to_owned());
        }
        pools.push(elsewhere(key, value, effects, sources));
        Some(vec![pools.len().saturating_sub(1)])
    }
}

/// A pool whose nodes are launched by another provisioner.
fn elsewhere(key: &str, value: &str, effects: Vec<String>, sources: &str) -> PoolDraft {
    let taints = effects.iter().map(|effect| HardTaint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.clone(),
    });
    let facts = NodeFacts {
        labels: [(key.to_owned(), value.to_owned())].into(),
        taints: taints.collect(),
        ..NodeFacts::default()
    };
    PoolDraft {
        source: sources.to_owned(),
        wanted: value.to_owned(),
        label: Some((key.to_owned(), value.to_owned())),
        effects,
        spec: Map::from_iter([("provisioner".to_owned(), json!("None"))]),
        metadata: Map::new(),
        nodes: vec![NodeDraft { facts, ..NodeDraft::default() }],
        notes: vec![Note::change(format!(
            "nodes with {key}={value} come from another provisioner: for Croft to launch them, give Karpenter's objects to the \
             same command, or write spec.template and provisioner: Croft"
        ))],
    }
}

/// True for a label that says nothing about the pool.
fn describes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/').filter(|_| !OF_POOLS.contains(&key)) else { return false };
    let is_under = |of: &&str| domain == *of || domain.ends_with(&format!(".{of}"));
    DESCRIBE.iter().any(is_under) && !domain.ends_with("node-restriction.kubernetes.io")
}

/// Whether nodes can have a label; `None` if nothing says so.
fn may_have(facts: &NodeFacts, key: &str, value: &str) -> Option<bool> {
    if let Some(label) = facts.labels.get(key) {
        return Some(label == value);
    }
    let allowed = facts.allowed.get(key)?;
    Some(allowed.as_ref().is_none_or(|values| values.iter().any(|one| one == value)))
}

/// True if every node of the pool has the label.
fn is_certain(pool: &PoolDraft, key: &str, value: &str) -> bool {
    let is_only = |nodes: &NodeDraft| {
        let allowed = nodes.facts.allowed.get(key).and_then(Option::as_deref);
        allowed.is_some_and(|values| values == [value.to_owned()])
    };
    pool.is_labelled(key, value)
        || pool.nodes.iter().all(|nodes| nodes.has_label(key, value) || is_only(nodes))
}

/// As kube-scheduler compares a toleration with a taint.
fn tolerates(toleration: &Value, taint: &HardTaint) -> bool {
    let (key, operator, effect) =
        (text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect"));
    (effect.is_empty() || effect == taint.effect)
        && match operator {
            "Exists" => key.is_empty() || key == taint.key,
            "" | "Equal" => key == taint.key && text(toleration, "value") == taint.value,
            _ => false,
        }
}

/// True if Croft writes the toleration into pods of the pool, for as long and for no other key.
fn is_written_by_croft(toleration: &Value, pool: &PoolDraft) -> bool {
    let Some((key, value)) = &pool.label else { return false };
    let known = |field: &String| matches!(field.as_str(), "key" | "operator" | "value" | "effect");
    let says_no_more = toleration.as_object().is_some_and(|fields| fields.keys().all(known));
    let is_exact = text(toleration, "operator") != "Exists" || toleration.get("value").is_none();
    let of_pool = pool.effects.iter().any(|effect| {
        tolerates(toleration, &HardTaint { key: key.clone(), value: value.clone(), effect: effect.clone() })
    });
    says_no_more && is_exact && of_pool && text(toleration, "key") == key
}
