//! The terms of a required node affinity: which expressions they lack, and how those are put there.

use std::collections::BTreeMap;

use crate::{
    denial::Denial,
    patch::{Patch, Path},
    view::{Expression, PodSpec, Term},
};

/// More expressions and values than this are not added: terms times keys could be a patch of gigabytes.
const MOST_ADDED: usize = 20_000;

/// An expression that every term must have: the key, and the values of `NotIn`, or none for `DoesNotExist`.
pub(crate) type Closed = (String, Vec<String>);

/// What an expression excludes of its key, and the terms that it is put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    /// The values of `NotIn`, or none for `DoesNotExist`.
    pub(crate) values: Vec<String>,
    /// In ascending order; none if all get it.
    pub(crate) terms: Vec<usize>,
}

impl Exclusion {
    /// True if the term at this place gets it.
    pub(crate) fn is_in(&self, term: usize) -> bool {
        self.terms.is_empty() || self.terms.binary_search(&term).is_ok()
    }
}

/// True if `expression`, of the same key, closes at least these values.
fn closes(expression: &Expression<'_>, values: &[String]) -> bool {
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

/// What of `closed`, which is in the order of its keys, `term` lacks. One pass over its expressions: somebody may write
/// many thousands.
fn missing<'c>(term: &Term<'_>, closed: &'c [Closed]) -> impl Iterator<Item = &'c Closed> {
    let mut shut = vec![false; closed.len()];
    for expression in term.expressions() {
        let at = closed.binary_search_by(|(key, _)| key.as_str().cmp(&*expression.key));
        if let Ok(at) = at
            && let (Some(shut), Some((_, values))) = (shut.get_mut(at), closed.get(at))
        {
            *shut = *shut || closes(expression, values);
        }
    }
    closed.iter().zip(shut).filter(|(_, shut)| !shut).map(|(c, _)| c)
}

/// Terms that match something, with their places. Those without any requirement match nothing.
fn filled<'s>(terms: &'s [Term<'s>]) -> impl Iterator<Item = (usize, &'s Term<'s>)> {
    terms.iter().enumerate().filter(|(_, term)| !term.is_empty())
}

/// What of `closed` some term of `spec` lacks, in the same order.
pub(crate) fn open<'c>(spec: &PodSpec<'_>, closed: &'c [Closed]) -> Vec<&'c Closed> {
    let Some(terms) = spec.terms() else { return closed.iter().collect() };
    let lacked: BTreeMap<&str, &Closed> =
        filled(terms).flat_map(|(_, term)| missing(term, closed)).map(|c| (c.0.as_str(), c)).collect();
    lacked.into_values().collect()
}

/// What the terms of a spec lack.
#[derive(Debug)]
pub(crate) enum Lack<'c> {
    /// It has no terms.
    Terms(&'c [Closed]),
    /// Some of so many filled terms lack expressions: their places, and which.
    Expressions(usize, Vec<(usize, Vec<&'c Closed>)>),
}

impl<'c> Lack<'c> {
    /// What of `closed`, which is in the order of its keys, `spec` lacks.
    ///
    /// # Errors
    /// If that is more than a patch may hold.
    pub(crate) fn of(spec: &PodSpec<'_>, closed: &'c [Closed]) -> Result<Self, Denial> {
        let Some(terms) = spec.terms() else { return Ok(Self::Terms(closed)) };
        let (mut count, mut lacking, mut added) = (0, Vec::new(), 0);
        for (at, term) in filled(terms) {
            count += 1;
            let missing: Vec<&Closed> = missing(term, closed).collect();
            added += missing.iter().map(|(_, values)| 1 + values.len()).sum::<usize>();
            if added > MOST_ADDED {
                return Err(Denial::too_many_terms(MOST_ADDED));
            }
            if !missing.is_empty() {
                lacking.push((at, missing));
            }
        }
        Ok(Self::Expressions(count, lacking))
    }

    /// The same by key.
    pub(crate) fn exclusions(&self) -> BTreeMap<String, Exclusion> {
        let mut exclusions: BTreeMap<String, Exclusion> = BTreeMap::new();
        let empty = |(_, values): &Closed| Exclusion { values: values.clone(), terms: Vec::new() };
        match self {
            Self::Terms(closed) => exclusions.extend(closed.iter().map(|c| (c.0.clone(), empty(c)))),
            Self::Expressions(count, lacking) => {
                for (at, missing) in lacking {
                    for c in missing {
                        exclusions.entry(c.0.clone()).or_insert_with(|| empty(c)).terms.push(*at);
                    }
                }
                exclusions.values_mut().filter(|e| e.terms.len() == *count).for_each(|e| e.terms.clear());
            }
        }
        exclusions
    }

    /// Writes what `spec`, which is at `path`, lacks into `patch`.
    pub(crate) fn complete(&self, spec: &PodSpec<'_>, path: &Path, patch: &mut Patch) {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = path.key("affinity");
        let node_affinity = affinity.key("nodeAffinity");
        let required = node_affinity.key(REQUIRED);
        match self {
            Self::Terms([]) => {}
            Self::Terms(closed) => {
                let term =
                    BTreeMap::from([("matchExpressions", closed.iter().map(written).collect::<Vec<_>>())]);
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
            Self::Expressions(_, lacking) => {
                let terms = required.key("nodeSelectorTerms");
                for (at, missing) in lacking {
                    let expressions = terms.at(*at).key("matchExpressions");
                    let term = spec.terms().and_then(|terms| terms.get(*at));
                    if term.is_some_and(|t| t.match_expressions.is_some()) {
                        missing.iter().for_each(|c| patch.add(&expressions.end(), &written(c)));
                    } else {
                        patch.add(&expressions, &missing.iter().map(|c| written(c)).collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Written<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    values: &'a [String],
}

fn written((key, values): &Closed) -> Written<'_> {
    Written { key, operator: if values.is_empty() { "DoesNotExist" } else { "NotIn" }, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(keys: usize) -> Vec<Closed> {
        (0..keys).map(|n| (format!("key-{n:03}"), Vec::new())).collect()
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
    fn what_is_added_is_bounded_whatever_the_terms_are() {
        let closed = closed(500);
        let most = spec(40);
        let mut patch = Patch::default();
        Lack::of(&most, &closed).unwrap().complete(&most, &Path::new("/spec"), &mut patch);
        assert_eq!(patch.len(), 40);
        assert!(patch.into_json().len() < 2 << 20);
        let refused = Lack::of(&spec(41), &closed).unwrap_err().message;
        assert!(refused.contains("write fewer nodeSelectorTerms"), "{refused}");
        let of_many_values = [("key".to_owned(), vec!["a".to_owned(); MOST_ADDED])];
        assert!(Lack::of(&spec(1), &of_many_values).is_err(), "values count too");
    }

    #[test]
    fn what_all_terms_lack_names_none() {
        let closed = closed(2);
        let both = Lack::of(&spec(3), &closed).unwrap().exclusions();
        assert!(both.len() == 2 && both.values().all(|e| e.terms.is_empty()), "{both:?}");
    }
}
