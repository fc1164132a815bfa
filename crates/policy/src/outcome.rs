//! The answer to one request or plan. Every rule returns it; the webhook and the CLI read it.

use crate::{definitions::Rule, denial::Denial, patch::Patch, tenancy::index::NamespaceTenancy};

/// The reason for the pool of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSource {
    /// The node that the pod names.
    Node,
    /// The node selector of the pod.
    Selector,
    /// The annotation of the pod.
    Annotation,
    /// The annotation of the namespace.
    Default,
    /// The pool is the tenant's first.
    First,
    /// The pool is the tenant's first whose nodes could hold the pod.
    Fit,
}

/// The answer to one request or plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<'t> {
    /// The rule that decided.
    pub rule: Rule,
    /// The refusal; `None` if the request is allowed.
    pub denial: Option<Denial>,
    /// The change of the object. Empty if the request is refused.
    pub patch: Patch,
    /// Sentences that the API server shows to the user.
    pub warnings: Vec<String>,
    /// The tenant that owns the namespace.
    pub tenant: Option<&'t str>,
    /// The pool that the pods go to.
    pub pool: Option<&'t str>,
    /// The reason for that pool.
    pub source: Option<PoolSource>,
}

impl<'t> Outcome<'t> {
    /// True if the request is allowed.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// Allows the request by `rule`, without a patch.
    pub(crate) fn allow(rule: Rule) -> Self {
        Self {
            rule,
            denial: None,
            patch: Patch::default(),
            warnings: Vec::new(),
            tenant: None,
            pool: None,
            source: None,
        }
    }

    /// Refuses the request.
    pub(crate) fn deny(denial: Denial) -> Self {
        Self { rule: denial.rule, denial: Some(denial), ..Self::allow(Rule::NotApplicable) }
    }

    /// Allows the request by `rule` if the check passed.
    pub(crate) fn from_check(result: Result<(), Denial>, rule: Rule) -> Self {
        result.map_or_else(Self::deny, |()| Self::allow(rule))
    }

    /// Names the tenant of the namespace.
    pub(crate) fn in_namespace(self, tenancy: NamespaceTenancy<'t>) -> Self {
        Self { tenant: tenancy.tenant().map(|tenant| &*tenant.name), ..self }
    }

    /// Adds `patch`, but to a refusal: a refusal has no patch, not even the part that was written before it was clear.
    pub(crate) fn with_patch(self, patch: Patch) -> Self {
        if self.denial.is_none() { Self { patch, ..self } } else { self }
    }
}
