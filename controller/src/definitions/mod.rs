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

/// One definition, for the reference pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name as users see it.
    pub name: &'static str,
    /// What it means.
    pub description: &'static str,
}

/// Defines string constants with their documentation, and the list of them.
macro_rules! define {
    ($list:ident: $($(#[doc = $doc:literal])+ $name:ident = $value:expr;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $value;)+
        /// Every definition above.
        pub const $list: &[$crate::definitions::Definition] = &[
            $($crate::definitions::Definition { name: $name, description: concat!($($doc),+) },)+
        ];
    };
}
pub(crate) use define;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{conditions, events, metrics};

    #[test]
    fn every_definition_is_distinct_and_described() {
        for list in [conditions::TYPES, conditions::REASONS, events::ALL, metrics::ALL] {
            let distinct: BTreeSet<_> = list.iter().map(|d| (d.name, d.description)).collect();
            assert_eq!(distinct.len(), list.len());
            assert!(list.iter().all(|definition| !definition.description.trim().is_empty()));
        }
    }
}
