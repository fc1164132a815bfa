//! How objects of one kind are processed after decoding.

use crate::check::FieldErrors;

/// Scope, defaults and validation of a kind.
pub(crate) struct Steps<T> {
    pub(crate) namespaced: bool,
    /// Refuse unknown fields. Kubernetes's own kinds come from clusters that may be newer than this version.
    pub(crate) strict: bool,
    /// Fills in what the API server would.
    pub(crate) default: fn(&mut T),
    /// Appends what the API server would refuse.
    pub(crate) check: fn(&T, &mut FieldErrors),
}

impl<T> Steps<T> {
    pub(crate) const CLUSTER: Self =
        Self { namespaced: false, strict: false, default: |_| {}, check: |_, _| {} };
    pub(crate) const NAMESPACED: Self = Self { namespaced: true, ..Self::CLUSTER };
}
