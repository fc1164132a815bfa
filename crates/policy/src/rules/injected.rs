//! The record of what Croft added to a DaemonSet's template, and its removal.
//!
//! Every write of a DaemonSet is planned from what the tenant wrote. The annotation `croft.dev/injected` of the template
//! records the rest. It travels with the template through ControllerRevisions: a rollback restores the old template
//! together with its record.

use std::collections::BTreeMap;

use crate::{
    definitions::INJECTED_ANNOTATION,
    patch::{Patch, Path},
    request::view::{Expression, PodSpec, Template, Term, Toleration},
    rules::{earlier_record, injection::Injection, node_affinity::RecordedExclusion},
    tenancy::taint::Effect,
};

/// Characters that separate the parts of a record. No label's key or value has one.
const SEPARATORS: [char; 4] = [';', ':', '=', ','];
/// Digits of a term's index.
const MAX_INDEX_DIGITS: usize = 6;

/// The injection that the template's annotation records. An annotation that can't be read was not written by Croft and
/// counts as empty.
pub(crate) fn recorded(template: &Template<'_>) -> Injection {
    let text = template.metadata.as_ref().and_then(|m| m.annotations.as_ref()?.injected.as_deref());
    text.and_then(read).unwrap_or_default()
}

fn read(text: &str) -> Option<Injection> {
    if earlier_record::is_one(text) { earlier_record::read(text) } else { parse(text) }
}

/// Parses words that are separated by semicolons, so that CEL can split them:
///
/// ```text
/// pin:KEY=VALUE                      the selector entry
/// tolerate:KEY=VALUE:EFFECT          a toleration
/// exclude:KEY:VALUE,VALUE:TERM,TERM  an expression of required terms; DoesNotExist without values, all without terms
/// ```
fn parse(text: &str) -> Option<Injection> {
    let plain = |part: &&str| !part.is_empty() && !part.contains(SEPARATORS);
    let pair = |text: &str| {
        let (key, value) = text.split_once('=')?;
        [key, value].iter().all(plain).then(|| (key.to_owned(), value.to_owned()))
    };
    let mut injection = Injection::default();
    for word in text.split(';').filter(|word| !word.is_empty()) {
        let mut parts = word.split(':');
        match [(); 4].map(|()| parts.next()) {
            [Some("pin"), Some(label), None, None] if injection.pin.is_none() => {
                injection.pin = Some(pair(label)?);
            }
            [Some("tolerate"), Some(label), Some(effect), None] => {
                let ((key, value), effect) = (pair(label)?, Effect::parse(effect)?);
                let toleration = (key, value, effect);
                // A pool has at most one taint per effect. A longer list would cost a search each.
                let is_extra = injection.tolerations.len() == Effect::ALL.len();
                if is_extra || injection.tolerations.contains(&toleration) {
                    return None;
                }
                injection.tolerations.push(toleration);
            }
            [Some("exclude"), Some(key), Some(values), Some(terms)] if plain(&key) => {
                let list = |text: &'_ str| -> Vec<String> {
                    if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
                };
                let values = list(values);
                if !values.iter().all(|value| plain(&value.as_str())) {
                    return None;
                }
                let terms = list(terms).iter().map(|index| parse_index(index)).collect::<Option<_>>()?;
                let exclusion = RecordedExclusion { values, terms };
                if injection.keep_out.insert(key.to_owned(), exclusion).is_some() {
                    return None;
                }
            }
            _ => return None,
        }
        if parts.next().is_some() {
            return None;
        }
    }
    Some(injection)
}

fn parse_index(text: &str) -> Option<usize> {
    let is_plain = text == "0" || !text.starts_with('0');
    let digits = (1..=MAX_INDEX_DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    (is_plain && digits).then(|| text.parse().ok()).flatten()
}

fn to_text(injection: &Injection) -> Option<String> {
    let pin = injection.pin.iter().map(|(key, value)| format!("pin:{key}={value}"));
    let tolerations = injection
        .tolerations
        .iter()
        .map(|(key, value, effect)| format!("tolerate:{key}={value}:{}", effect.as_str()));
    let exclusions = injection.keep_out.iter().map(|(key, exclusion)| {
        let terms: Vec<String> = exclusion.terms.iter().map(usize::to_string).collect();
        format!("exclude:{key}:{}:{}", exclusion.values.join(","), terms.join(","))
    });
    let words: Vec<String> = pin.chain(tolerations).chain(exclusions).collect();
    (!words.is_empty()).then(|| words.join(";"))
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
            // Another text of the same meaning would start a rollout.
            let is_same = earlier_record::is_one(old) && read(old).as_ref() == Some(injection);
            if *text != **old && !is_same {
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

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "pin:node-pool=a;tolerate:node-pool=a:NoSchedule;tolerate:node-pool=a:NoExecute;\
                         exclude:example.com/k::;exclude:z:b,c:0,12";

    #[test]
    fn record_is_read_as_it_was_written() {
        let injection = parse(WHOLE).unwrap();
        assert_eq!(to_text(&injection).as_deref(), Some(WHOLE));
        assert_eq!(to_text(&Injection::default()), None);
    }

    #[test]
    fn record_that_croft_does_not_write_counts_as_empty() {
        for text in [
            "pin:a=b;pin:c=d",
            "pin:a",
            "pin:a=b:c",
            "tolerate:a=b",
            "tolerate:a=b:Never",
            "tolerate:a=b:NoSchedule;tolerate:a=b:NoSchedule",
            "tolerate:a=b:NoSchedule;tolerate:c=b:NoSchedule;tolerate:d=b:NoSchedule;tolerate:e=b:NoSchedule",
            "exclude:a:b:01",
            "exclude:a:b:1234567",
            "exclude:a:b,:0",
            "exclude:a::;exclude:a:b:",
            "exclude:a:b:0:1",
            "{\"nodeSelector\"",
            "other",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn earlier_record_means_the_same() {
        let json = r#"{"nodeSelector":{"node-pool":"a"},"tolerations":[
            {"key":"node-pool","value":"a","effect":"NoSchedule"},{"key":"node-pool","value":"a","effect":"NoExecute"}],
            "nodeAffinity":[{"key":"example.com/k"},{"key":"z","not_in":["b","c"],"terms":[0,12]}]}"#;
        assert_eq!(read(json), parse(WHOLE));
    }
}
