//! The record of what Croft added to a DaemonSet's template, and its removal.
//!
//! Every write of a DaemonSet is planned from what the tenant wrote. The annotation `croft.dev/injected` of the template
//! records the rest. It travels with the template through ControllerRevisions: a rollback restores the old template
//! together with its record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    definitions::INJECTED_ANNOTATION,
    patch::{Patch, Path},
    request::view::{Expression, PodSpec, Template, Term, Toleration},
    rules::{injection::Injection, node_affinity::RecordedExclusion},
    tenancy::taint::Effect,
};

/// The record, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tolerations: Vec<RecordedToleration>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    node_affinity: Vec<RecordedExpression>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedToleration {
    key: String,
    value: String,
    effect: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedExpression {
    key: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_in: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    terms: Vec<usize>,
}

/// The injection that the template's annotation records. An annotation that can't be read was not written by Croft and
/// counts as empty.
pub(crate) fn recorded(template: &Template<'_>) -> Injection {
    let text = template.metadata.as_ref().and_then(|m| m.annotations.as_ref()?.injected.as_deref());
    let record: Record = text.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default();
    Injection {
        pin: record.node_selector.into_iter().next(),
        // A pool has at most one taint per effect. A longer list was not written by Croft, and would cost a search each.
        tolerations: record
            .tolerations
            .into_iter()
            .take(Effect::ALL.len())
            .filter_map(|t| Some((t.key, t.value, Effect::parse(&t.effect)?)))
            .collect(),
        keep_out: record
            .node_affinity
            .into_iter()
            .map(|e| (e.key, RecordedExclusion { values: e.not_in, terms: e.terms }))
            .collect(),
    }
}

fn to_text(injection: &Injection) -> Option<String> {
    let record = Record {
        node_selector: injection.pin.clone().into_iter().collect(),
        tolerations: injection
            .tolerations
            .iter()
            .map(|(key, value, effect)| RecordedToleration {
                key: key.clone(),
                value: value.clone(),
                effect: effect.as_str().to_owned(),
            })
            .collect(),
        node_affinity: injection
            .keep_out
            .iter()
            .map(|(key, exclusion)| RecordedExpression {
                key: key.clone(),
                not_in: exclusion.values.clone(),
                terms: exclusion.terms.clone(),
            })
            .collect(),
    };
    if record == Record::default() { None } else { serde_json::to_string(&record).ok() }
}

/// Writes the record of `injection` into the template at `path`, unless it is there already.
pub(crate) fn record(template: &Template<'_>, injection: &Injection, path: &Path, patch: &mut Patch) {
    let wanted = to_text(injection);
    let metadata = path.key("metadata");
    let list = metadata.key("annotations");
    let entry_path = list.key(INJECTED_ANNOTATION);
    let annotations = template.metadata.as_ref().map(|m| m.annotations.as_ref());
    let present = annotations.flatten().and_then(|a| a.injected.as_ref());
    match (wanted, present) {
        (None, None) => {}
        (None, Some(_)) => patch.remove(&entry_path),
        (Some(text), Some(old)) => {
            if *text != **old {
                patch.replace(&entry_path, &text);
            }
        }
        (Some(text), None) => {
            let entry = BTreeMap::from([(INJECTED_ANNOTATION, &text)]);
            match annotations {
                Some(Some(_)) => patch.add(&entry_path, &text),
                Some(None) => patch.add(&list, &entry),
                None => patch.add(&metadata, &BTreeMap::from([("annotations", entry)])),
            }
        }
    }
}

/// The part of `old` that isn't in `new`.
pub(crate) fn outdated(old: &Injection, new: &Injection) -> Injection {
    Injection {
        pin: old.pin.clone().filter(|pin| Some(pin) != new.pin.as_ref()),
        tolerations: old.tolerations.iter().filter(|t| !new.tolerations.contains(t)).cloned().collect(),
        keep_out: old
            .keep_out
            .iter()
            .filter(|(key, exclusion)| new.keep_out.get(*key) != Some(exclusion))
            .map(|(key, exclusion)| (key.clone(), exclusion.clone()))
            .collect(),
    }
}

fn is_injected(toleration: &Toleration<'_>, (key, value, effect): &(String, String, Effect)) -> bool {
    *toleration.key == **key
        && *toleration.value == **value
        && toleration.operator == "Equal"
        && toleration.effect == effect.as_str()
        && toleration.toleration_seconds.is_none()
}

/// True if `expression`, in the term at this index, was added by Croft.
fn is_excluded(
    keep_out: &BTreeMap<String, RecordedExclusion>,
    term: usize,
    expression: &Expression<'_>,
) -> bool {
    keep_out.get(&*expression.key).is_some_and(|exclusion| {
        let operator = if exclusion.values.is_empty() { "DoesNotExist" } else { "NotIn" };
        exclusion.is_in(term)
            && expression.operator == operator
            && expression.values.iter().map(|v| &**v).eq(exclusion.values.iter().map(|v| &**v))
    })
}

/// `spec` without `injection`. The removals are written into the patch, if given, as operations on the spec at that path.
pub(crate) fn without<'a>(
    spec: &PodSpec<'a>,
    injection: &Injection,
    mut patch: Option<(&Path, &mut Patch)>,
) -> PodSpec<'a> {
    let mut rest = spec.clone();
    if let (Some((key, value)), Some(selector)) = (&injection.pin, &mut rest.node_selector)
        && selector.get(key).is_some_and(|v| **v == **value)
    {
        selector.remove(key);
        if let Some((path, patch)) = &mut patch {
            patch.remove(&path.key("nodeSelector").key(key));
        }
    }
    if let Some(tolerations) = &mut rest.tolerations {
        // The first equal one: Croft adds a toleration only where no equal one comes before it. The tenant's equal one
        // may come later, behind the one with a time limit.
        for injected in &injection.tolerations {
            if let Some(at) = tolerations.iter().position(|t| is_injected(t, injected)) {
                tolerations.remove(at);
                if let Some((path, patch)) = &mut patch {
                    patch.remove(&path.key("tolerations").at(at));
                }
            }
        }
    }
    without_terms(&mut rest, injection, patch);
    rest
}

fn without_terms(rest: &mut PodSpec<'_>, injection: &Injection, mut patch: Option<(&Path, &mut Patch)>) {
    if injection.keep_out.is_empty() {
        return;
    }
    let Some(node_affinity) = rest.affinity.as_mut().and_then(|a| a.node_affinity.as_mut()) else { return };
    let Some(required) = node_affinity.required.as_mut() else { return };
    let ours = |at: usize, e: &Expression<'_>| is_excluded(&injection.keep_out, at, e);
    let only_ours = |at: usize, t: &Term<'_>| {
        t.match_fields.as_ref().is_none_or(Vec::is_empty)
            && !t.is_empty()
            && t.expressions().iter().all(|e| ours(at, e))
    };
    // Croft added the whole affinity: it never adds a term beside the tenant's.
    if let [term] = required.node_selector_terms.as_slice()
        && only_ours(0, term)
    {
        node_affinity.required = None;
        if let Some((path, patch)) = &mut patch {
            patch.remove(
                &path
                    .key("affinity")
                    .key("nodeAffinity")
                    .key("requiredDuringSchedulingIgnoredDuringExecution"),
            );
        }
        return;
    }
    for (at, term) in required.node_selector_terms.iter_mut().enumerate() {
        // A term that would be left empty would match nothing, so its expressions are the tenant's own.
        if only_ours(at, term) {
            continue;
        }
        let Some(expressions) = term.match_expressions.as_mut() else { continue };
        let (mut index, mut removed) = (0, Vec::new());
        expressions.retain(|expression| {
            let remove = ours(at, expression);
            if remove {
                removed.push(index);
            }
            index += 1;
            !remove
        });
        if let Some((path, patch)) = &mut patch {
            let terms = path
                .key("affinity")
                .key("nodeAffinity")
                .key("requiredDuringSchedulingIgnoredDuringExecution")
                .key("nodeSelectorTerms");
            let expressions = terms.at(at).key("matchExpressions");
            removed.iter().rev().for_each(|index| patch.remove(&expressions.at(*index)));
        }
    }
}
