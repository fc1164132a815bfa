//! Required node affinities: which expressions their terms lack, and the operations that add them.

use std::collections::BTreeMap;

use crate::{
    denial::Denial,
    patch::{Patch, Path},
    request::view::{Expression, PodSpec, Term},
};

/// The most expressions and values that a patch adds: terms times keys could be gigabytes.
const MAX_ADDED: usize = 20_000;

/// An expression that every term must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyExclusion {
    /// The key of the label.
    pub(crate) key: String,
    /// The values of `NotIn`; empty for `DoesNotExist`.
    pub(crate) values: Vec<String>,
}

/// An expression that was added, as the annotation of a DaemonSet's template records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedExclusion {
    /// The values of `NotIn`; empty for `DoesNotExist`.
    pub(crate) values: Vec<String>,
    /// Indexes of the terms that got it, ascending; empty if all did.
    pub(crate) terms: Vec<usize>,
}

impl RecordedExclusion {
    /// True if the term at this index got it.
    pub(crate) fn is_in(&self, term: usize) -> bool {
        self.terms.is_empty() || self.terms.contains(&term)
    }
}

/// True if `expression`, of the same key, excludes at least these values.
fn excludes(expression: &Expression<'_>, values: &[String]) -> bool {
    match expression.operator.as_str() {
        "DoesNotExist" => true,
        "NotIn" if !values.is_empty() => {
            let mut listed: Vec<&str> = expression.values.iter().map(|v| &**v).collect();
            listed.sort_unstable();
            values.iter().all(|v| listed.binary_search(&v.as_str()).is_ok())
        }
        _ => false,
    }
}

/// The part of `exclusions`, which are sorted by key, that `term` lacks. One pass over the term's expressions, since a
/// user may write many thousands.
fn missing<'c>(term: &Term<'_>, exclusions: &'c [KeyExclusion]) -> impl Iterator<Item = &'c KeyExclusion> {
    let mut excluded = vec![false; exclusions.len()];
    for expression in term.expressions() {
        let at = exclusions.binary_search_by(|wanted| wanted.key.as_str().cmp(&*expression.key));
        if let Ok(at) = at
            && let (Some(excluded), Some(wanted)) = (excluded.get_mut(at), exclusions.get(at))
        {
            *excluded = *excluded || excludes(expression, &wanted.values);
        }
    }
    exclusions.iter().zip(excluded).filter(|(_, excluded)| !excluded).map(|(wanted, _)| wanted)
}

/// The terms that can match a node, with their indexes. A term without any requirement matches nothing.
fn matching_terms<'s>(terms: &'s [Term<'s>]) -> impl Iterator<Item = (usize, &'s Term<'s>)> {
    terms.iter().enumerate().filter(|(_, term)| !term.is_empty())
}

/// True if every term of the required node affinity excludes nodes with the label `key` of this value.
pub(crate) fn excludes_label(spec: &PodSpec<'_>, key: &str, value: &str) -> bool {
    let values = [value.to_owned()];
    let is_excluding = |term: &Term<'_>| {
        term.expressions().iter().any(|expression| *expression.key == *key && excludes(expression, &values))
    };
    spec.terms().is_some_and(|terms| !terms.is_empty() && terms.iter().all(is_excluding))
}

/// The name of the only node that every required term leaves to the pod, as the DaemonSet controller writes it into its pods.
pub(crate) fn only_node<'s>(spec: &'s PodSpec<'_>) -> Option<&'s str> {
    let named = |term: &'s Term<'_>| {
        let fields = term.match_fields.iter().flatten();
        let mut names = fields.filter(|field| *field.key == *"metadata.name" && *field.operator == *"In");
        match names.next()?.values.as_slice() {
            [name] => Some(&**name),
            _ => None,
        }
    };
    let mut terms = spec.terms()?.iter().filter(|term| !term.is_empty()).map(named);
    let first = terms.next()??;
    terms.all(|name| name == Some(first)).then_some(first)
}

/// The part of `exclusions` that some term of `spec` lacks, in the same order.
pub(crate) fn missing_in_some_term<'c>(
    spec: &PodSpec<'_>,
    exclusions: &'c [KeyExclusion],
) -> Vec<&'c KeyExclusion> {
    let Some(terms) = spec.terms() else { return exclusions.iter().collect() };
    let missing: BTreeMap<&str, &KeyExclusion> = matching_terms(terms)
        .flat_map(|(_, term)| missing(term, exclusions))
        .map(|wanted| (wanted.key.as_str(), wanted))
        .collect();
    missing.into_values().collect()
}

/// The expressions that the terms of a spec lack.
#[derive(Debug)]
pub(crate) enum MissingExpressions<'c> {
    /// The spec has no terms: one with all of these is to be added.
    AllTerms(&'c [KeyExclusion]),
    /// The number of terms that can match, and by index the expressions that each lacks.
    InTerms(usize, Vec<(usize, Vec<&'c KeyExclusion>)>),
}

impl<'c> MissingExpressions<'c> {
    /// Finds the part of `exclusions`, which are sorted by key, that `spec` lacks.
    ///
    /// # Errors
    /// If the patch would add more than [`MAX_ADDED`] expressions and values.
    pub(crate) fn find(spec: &PodSpec<'_>, exclusions: &'c [KeyExclusion]) -> Result<Self, Denial> {
        let Some(terms) = spec.terms() else { return Ok(Self::AllTerms(exclusions)) };
        let (mut count, mut lacking, mut added) = (0, Vec::new(), 0);
        for (at, term) in matching_terms(terms) {
            count += 1;
            let missing: Vec<&KeyExclusion> = missing(term, exclusions).collect();
            added += missing.iter().map(|wanted| 1 + wanted.values.len()).sum::<usize>();
            if added > MAX_ADDED {
                return Err(Denial::too_many_terms(MAX_ADDED));
            }
            if !missing.is_empty() {
                lacking.push((at, missing));
            }
        }
        Ok(Self::InTerms(count, lacking))
    }

    /// The same by key, as it is recorded.
    pub(crate) fn by_key(&self) -> BTreeMap<String, RecordedExclusion> {
        let mut recorded: BTreeMap<String, RecordedExclusion> = BTreeMap::new();
        let empty =
            |wanted: &KeyExclusion| RecordedExclusion { values: wanted.values.clone(), terms: Vec::new() };
        match self {
            Self::AllTerms(exclusions) => {
                recorded.extend(exclusions.iter().map(|wanted| (wanted.key.clone(), empty(wanted))));
            }
            Self::InTerms(count, lacking) => {
                for (at, missing) in lacking {
                    for wanted in missing {
                        let entry = recorded.entry(wanted.key.clone());
                        entry.or_insert_with(|| empty(wanted)).terms.push(*at);
                    }
                }
                recorded.values_mut().filter(|e| e.terms.len() == *count).for_each(|e| e.terms.clear());
            }
        }
        recorded
    }

    /// Writes into `patch` what `spec`, which is at `path`, lacks.
    pub(crate) fn write(&self, spec: &PodSpec<'_>, path: &Path, patch: &mut Patch) {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = path.key("affinity");
        let node_affinity = affinity.key("nodeAffinity");
        let required = node_affinity.key(REQUIRED);
        match self {
            Self::AllTerms([]) => {}
            Self::AllTerms(exclusions) => {
                let expressions: Vec<_> = exclusions.iter().map(serialized).collect();
                let term = BTreeMap::from([("matchExpressions", expressions)]);
                let terms = BTreeMap::from([("nodeSelectorTerms", [term])]);
                match spec.affinity.as_ref().map(|a| &a.node_affinity) {
                    Some(Some(_)) => patch.add(&required, &terms),
                    Some(None) => patch.add(&node_affinity, &BTreeMap::from([(REQUIRED, terms)])),
                    None => {
                        let inner = BTreeMap::from([(REQUIRED, terms)]);
                        patch.add(&affinity, &BTreeMap::from([("nodeAffinity", inner)]));
                    }
                }
            }
            Self::InTerms(_, lacking) => {
                let terms = required.key("nodeSelectorTerms");
                for (at, missing) in lacking {
                    let expressions = terms.at(*at).key("matchExpressions");
                    let term = spec.terms().and_then(|terms| terms.get(*at));
                    if term.is_some_and(|t| t.match_expressions.is_some()) {
                        missing.iter().for_each(|c| patch.add(&expressions.end(), &serialized(c)));
                    } else {
                        patch.add(&expressions, &missing.iter().map(|c| serialized(c)).collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Serialized<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    values: &'a [String],
}

fn serialized(KeyExclusion { key, values }: &KeyExclusion) -> Serialized<'_> {
    Serialized { key, operator: if values.is_empty() { "DoesNotExist" } else { "NotIn" }, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exclusions(keys: usize) -> Vec<KeyExclusion> {
        (0..keys).map(|n| KeyExclusion { key: format!("key-{n:03}"), values: Vec::new() }).collect()
    }

    fn spec(terms: usize) -> PodSpec<'static> {
        let term =
            serde_json::json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]});
        let required = serde_json::json!({"nodeSelectorTerms": vec![term; terms]});
        let text = serde_json::json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required}}})
        .to_string();
        serde_json::from_str(String::leak(text)).unwrap()
    }

    #[test]
    fn patch_is_refused_above_the_limit_of_expressions_and_values() {
        let exclusions = exclusions(500);
        let most = spec(40);
        let mut patch = Patch::default();
        MissingExpressions::find(&most, &exclusions).unwrap().write(&most, &Path::new("/spec"), &mut patch);
        assert_eq!(patch.len(), 40);
        assert!(patch.into_json().len() < 2 << 20);
        let refused = MissingExpressions::find(&spec(41), &exclusions).unwrap_err().message;
        assert!(refused.contains("write fewer nodeSelectorTerms"), "{refused}");
        let of_many_values =
            [KeyExclusion { key: "key".to_owned(), values: vec!["a".to_owned(); MAX_ADDED] }];
        assert!(MissingExpressions::find(&spec(1), &of_many_values).is_err(), "values count too");
    }

    #[test]
    fn expression_missing_in_all_terms_is_recorded_without_indexes() {
        let exclusions = exclusions(2);
        let both = MissingExpressions::find(&spec(3), &exclusions).unwrap().by_key();
        assert!(both.len() == 2 && both.values().all(|e| e.terms.is_empty()), "{both:?}");
    }
}
