//! The record of what Croft added to a DaemonSet's template, as it was first written: JSON.
//!
//! It is read, and replaced once what it records changes. CEL has no parser of JSON, so the webhook stays responsible for a
//! DaemonSet with such a record.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    rules::{injection::Injection, node_affinity::RecordedExclusion},
    tenancy::taint::Effect,
};

/// The first character of such a record, and of no other.
pub(crate) const START: char = '{';

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<RecordedToleration>,
    node_affinity: Vec<RecordedExpression>,
}

#[derive(Deserialize)]
struct RecordedToleration {
    key: String,
    value: String,
    effect: String,
}

#[derive(Deserialize)]
struct RecordedExpression {
    key: String,
    #[serde(default)]
    not_in: Vec<String>,
    #[serde(default)]
    terms: Vec<usize>,
}

/// True if `text` is such a record.
pub(crate) fn is_one(text: &str) -> bool {
    text.starts_with(START)
}

/// Reads such a record; `None` if it can't be read.
pub(crate) fn read(text: &str) -> Option<Injection> {
    let record: Record = serde_json::from_str(text).ok()?;
    Some(Injection {
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
    })
}
