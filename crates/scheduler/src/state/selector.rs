//! Which pods a topology spread constraint or an affinity term means.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    model::requirement::{Operator, Requirement},
    state::{
        interner::{Labels, Sym, Symbols, label},
        node_requirement::Expr,
    },
};

/// The fields of a pod that a selector reads. Pods that agree in it are alike to every selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ident {
    pub(crate) namespace: Sym,
    pub(crate) labels: Labels,
    /// Being deleted: topology spread doesn't count it, affinity does.
    pub(crate) terminating: bool,
}

/// The namespaces whose pods a selector may match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Namespaces {
    Named(Box<[Sym]>),
    /// These, and those whose labels satisfy all conditions.
    Labelled(Box<[Sym]>, Box<[Expr]>),
}

/// Pods in some namespaces whose labels satisfy all conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OneSelector {
    pub(crate) namespaces: Namespaces,
    /// `None` matches nothing.
    pub(crate) exprs: Option<Box<[Expr]>>,
}

/// Pods that satisfy every part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selector {
    pub(crate) parts: Box<[OneSelector]>,
    /// Leaves out pods that are being deleted.
    pub(crate) live_only: bool,
}

/// By the name of the namespace.
pub(crate) type NamespaceLabels = rustc_hash::FxHashMap<Sym, Labels>;

impl OneSelector {
    fn matches(&self, symbols: &Symbols, namespaces: &NamespaceLabels, pod: &Ident) -> bool {
        let Some(exprs) = &self.exprs else { return false };
        let in_namespace = match &self.namespaces {
            Namespaces::Named(names) => names.contains(&pod.namespace),
            Namespaces::Labelled(names, exprs) => {
                let labels = namespaces.get(&pod.namespace).map_or(&[][..], |l| l);
                names.contains(&pod.namespace)
                    || exprs.iter().all(|e| e.matches(symbols, label(labels, e.key)))
            }
        };
        in_namespace && exprs.iter().all(|e| e.matches(symbols, label(&pod.labels, e.key)))
    }
}

impl Selector {
    pub(crate) fn matches(&self, symbols: &Symbols, namespaces: &NamespaceLabels, pod: &Ident) -> bool {
        !(self.live_only && pod.terminating)
            && self.parts.iter().all(|part| part.matches(symbols, namespaces, pod))
    }

    /// The only namespaces where it can match anything, if they are listed.
    pub(crate) fn named_namespaces(&self) -> Option<&[Sym]> {
        self.parts.iter().find_map(|part| match &part.namespaces {
            Namespaces::Named(names) => Some(&**names),
            Namespaces::Labelled(..) => None,
        })
    }
}

/// Reads a label selector, and adds what matchLabelKeys and mismatchLabelKeys mean for a pod with `pod_labels`.
pub(crate) fn exprs(
    symbols: &mut Symbols,
    selector: Option<&LabelSelector>,
    match_keys: &[String],
    mismatch_keys: &[String],
    pod_labels: &BTreeMap<String, String>,
) -> Result<Option<Box<[Expr]>>, String> {
    let Some(selector) = selector else { return Ok(None) };
    let mut result = Vec::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        result.push(Expr::is(symbols.sym(key), symbols.sym(value)));
    }
    for r in selector.match_expressions.iter().flatten() {
        let operator = match r.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                return Err(format!(
                    "unknown operator {other:?} on {}: write In, NotIn, Exists or DoesNotExist",
                    r.key
                ));
            }
        };
        let values = r.values.clone().unwrap_or_default();
        let requirement = Requirement { key: r.key.clone(), operator, values, min_values: None };
        result.push(Expr::new(symbols, &requirement)?);
    }
    let keys = match_keys.iter().map(|k| (k, Operator::In));
    for (key, operator) in keys.chain(mismatch_keys.iter().map(|k| (k, Operator::NotIn))) {
        if let Some(value) = pod_labels.get(key) {
            let values = Box::new([symbols.sym(value)]);
            result.push(Expr { key: symbols.sym(key), operator, values, bound: 0 });
        }
    }
    result.sort_unstable_by(|a, b| {
        (a.key, a.operator, &a.values, a.bound).cmp(&(b.key, b.operator, &b.values, b.bound))
    });
    result.dedup();
    Ok(Some(result.into()))
}
