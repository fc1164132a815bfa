//! Every metric, condition, event reason, label, annotation and taint that the controller writes, each defined once with
//! its documentation.
//!
//! The reference pages are generated from the tables of each module. Condition types that other crates read, too, are in
//! `croft_api::condition`; reasons of pending pods are `croft_scheduler::ReasonKind`, reasons of failed launches are
//! `croft_cloud::LaunchError::reason`, and reasons of interruptions are `croft_cloud::InterruptionKind`.

pub mod conditions;
pub mod events;
pub mod keys;
pub mod metrics;

/// A reason of conditions or events, for the reference pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The name as users see it.
    pub name: &'static str,
    /// The condition types, or the kinds of objects, that have it.
    pub on: &'static str,
    /// Its meaning.
    pub description: &'static str,
}

/// Defines constants for reasons, and a table of them.
///
/// Each entry is `CONSTANT = "Reason", on "conditions or kinds";` below its doc comment.
macro_rules! define {
    (
        $(#[doc = $about:literal])+ $vis:vis const $table:ident;
        $($(#[doc = $doc:literal])+ $name:ident = $value:expr, on $on:literal;)+
    ) => {
        $($(#[doc = $doc])+ $vis const $name: &str = $value;)+

        $(#[doc = $about])+
        $vis const $table: &[$crate::definitions::Reason] = &[$($crate::definitions::Reason {
            name: $name,
            on: $on,
            description: concat!($($doc),+).trim_ascii(),
        },)+];
    };
}
pub(crate) use define;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{conditions, events, keys, metrics};

    #[test]
    fn every_definition_is_distinct_and_described() {
        let types = conditions::TYPES.iter().map(|d| (d.name, d.on, d.description)).collect();
        let reasons = |list: &[super::Reason]| list.iter().map(|d| (d.name, d.on, d.description)).collect();
        let keys = keys::KEYS.iter().map(|d| (d.name, d.on, d.description)).collect();
        let metrics = metrics::METRICS.iter().map(|d| (d.name, "", d.help)).collect();
        let lists: [Vec<_>; 5] = [types, reasons(conditions::REASONS), reasons(events::ALL), keys, metrics];
        for list in lists {
            let distinct: BTreeSet<_> = list.iter().collect();
            assert_eq!(distinct.len(), list.len());
            assert!(list.iter().all(|(_, _, description)| !description.trim().is_empty()));
        }
    }
}
