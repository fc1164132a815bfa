//! Requirements of pods, volumes and pools on a node's labels.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use crate::{
    model::requirement::{Operator, Requirement},
    state::interner::{Sym, Symbols, label},
};

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expr {
    pub(crate) key: Sym,
    pub(crate) operator: Operator,
    /// Sorted.
    pub(crate) values: Box<[Sym]>,
    /// The bound of Gt, Lt, Gte and Lte.
    pub(crate) bound: i64,
}

impl Expr {
    pub(crate) fn is(key: Sym, value: Sym) -> Self {
        Self::any_of(key, vec![value])
    }

    pub(crate) fn any_of(key: Sym, mut values: Vec<Sym>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self { key, operator: Operator::In, values: values.into(), bound: 0 }
    }

    pub(crate) fn new(symbols: &mut Symbols, requirement: &Requirement) -> Result<Self, String> {
        requirement.check()?;
        let compares =
            matches!(requirement.operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte);
        let bound = match requirement.values.first() {
            Some(value) if compares => value.parse().unwrap_or(0),
            _ => 0,
        };
        let mut values: Vec<_> =
            requirement.values.iter().filter(|_| !compares).map(|v| symbols.sym(v)).collect();
        values.sort_unstable();
        values.dedup();
        Ok(Self {
            key: symbols.sym(&requirement.key),
            operator: requirement.operator,
            values: values.into(),
            bound,
        })
    }

    pub(crate) fn from_api(symbols: &mut Symbols, r: &NodeSelectorRequirement) -> Result<Self, String> {
        let Some(operator) = Operator::parse(&r.operator) else {
            return Err(format!(
                "unknown operator {:?} on {}: write In, NotIn, Exists, DoesNotExist, Gt or Lt",
                r.operator, r.key
            ));
        };
        let requirement = Requirement {
            key: r.key.clone(),
            operator,
            values: r.values.clone().unwrap_or_default(),
            min_values: None,
        };
        Self::new(symbols, &requirement)
    }

    /// True if a label with `value` satisfies the condition.
    pub(crate) fn matches(&self, symbols: &Symbols, value: Option<Sym>) -> bool {
        match (self.operator, value) {
            (Operator::In, Some(v)) => self.values.binary_search(&v).is_ok(),
            (Operator::NotIn, Some(v)) => self.values.binary_search(&v).is_err(),
            (Operator::NotIn | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::DoesNotExist, Some(_)) | (_, None) => false,
            (operator, Some(v)) => symbols.text(v).parse::<i64>().is_ok_and(|v| match operator {
                Operator::Gt => v > self.bound,
                Operator::Lt => v < self.bound,
                Operator::Gte => v >= self.bound,
                _ => v <= self.bound,
            }),
        }
    }

    pub(crate) fn show(&self, symbols: &Symbols) -> String {
        let values = if matches!(self.operator, Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte) {
            vec![self.bound.to_string()]
        } else {
            self.values.iter().map(|v| symbols.text(*v).to_owned()).collect()
        };
        let key = symbols.text(self.key).to_owned();
        Requirement { key, operator: self.operator, values, min_values: None }.to_string()
    }
}

/// Conditions that must hold together. One without any matches nothing, as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) labels: Box<[Expr]>,
    /// Conditions on metadata.name.
    pub(crate) fields: Box<[Expr]>,
}

impl Term {
    pub(crate) fn from_api(symbols: &mut Symbols, term: &NodeSelectorTerm) -> Result<Self, String> {
        let mut read = |list: &Option<Vec<NodeSelectorRequirement>>| {
            list.iter().flatten().map(|r| Expr::from_api(symbols, r)).collect::<Result<Box<[_]>, _>>()
        };
        let (labels, fields) = (read(&term.match_expressions)?, read(&term.match_fields)?);
        for field in &fields {
            if symbols.text(field.key) != "metadata.name" {
                return Err(format!("matchFields knows only metadata.name, not {}", symbols.text(field.key)));
            }
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn matches(&self, symbols: &Symbols, labels: &[(Sym, Sym)], name: Option<Sym>) -> bool {
        (!self.labels.is_empty() || !self.fields.is_empty())
            && self.labels.iter().all(|e| e.matches(symbols, label(labels, e.key)))
            && self.fields.iter().all(|e| e.matches(symbols, name))
    }

    pub(crate) fn show(&self, symbols: &Symbols) -> String {
        let all: Vec<_> = self.labels.iter().chain(&self.fields).map(|e| e.show(symbols)).collect();
        if all.is_empty() { "an empty term, which matches nothing".to_owned() } else { all.join(" and ") }
    }
}

/// Terms of which one must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeReq {
    pub(crate) terms: Box<[Term]>,
}

impl NodeReq {
    /// All of `exprs`.
    pub(crate) fn all_of(exprs: Vec<Expr>) -> Self {
        Self { terms: Box::new([Term { labels: exprs.into(), fields: Box::default() }]) }
    }

    pub(crate) fn from_api(symbols: &mut Symbols, selector: &NodeSelector) -> Result<Self, String> {
        let terms = selector.node_selector_terms.iter().map(|t| Term::from_api(symbols, t));
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }

    /// The requirement as several that must hold together: one for each condition, or only one if there is a choice of terms.
    pub(crate) fn parts(&self) -> Vec<Self> {
        match &*self.terms {
            [term] if !term.labels.is_empty() && term.fields.is_empty() => {
                term.labels.iter().map(|expr| Self::all_of(vec![expr.clone()])).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// True if a node of that name and with these labels satisfies one of the terms.
    pub(crate) fn matches(&self, symbols: &Symbols, labels: &[(Sym, Sym)], name: Option<Sym>) -> bool {
        self.terms.iter().any(|t| t.matches(symbols, labels, name))
    }

    pub(crate) fn show(&self, symbols: &Symbols) -> String {
        let terms: Vec<_> = self.terms.iter().map(|t| t.show(symbols)).collect();
        if terms.is_empty() { "no term, which matches nothing".to_owned() } else { terms.join(", or ") }
    }
}
