//! The namespaces that owners created and that have their tenant's pools, by tenant, and the namespaces beyond the number
//! that the tenant allows.
//!
//! The index counts here as namespaces change. Pods of a surplus namespace are refused by [`rules`](crate::rules), and the
//! controller writes [`Surplus::annotation`] on the namespace, by which the policies refuse them.

use std::{collections::BTreeSet, sync::Arc};

use super::{declarations::DeclaredTenant, sharded_map::ShardedMap};

/// Namespaces that a message names.
const MAX_NAMED: usize = 5;

/// A namespace that owners created beyond `namespaceCreation.maximum`: as many others have pools, so it gets none.
#[derive(Clone, Copy, Debug)]
pub struct Surplus<'t> {
    /// The tenant.
    pub tenant: &'t DeclaredTenant,
    /// The number of namespaces that may have pools.
    pub maximum: u32,
    open: Option<&'t BTreeSet<Arc<str>>>,
}

impl<'t> Surplus<'t> {
    /// `None` if fewer namespaces than the tenant's maximum are `open`: they count and have pools.
    pub(super) fn find(tenant: &'t DeclaredTenant, open: Option<&'t BTreeSet<Arc<str>>>) -> Option<Self> {
        let maximum = tenant.creation()?.maximum;
        let is_full = open.map_or(0, BTreeSet::len) >= usize::try_from(maximum).unwrap_or(usize::MAX);
        is_full.then_some(Self { tenant, maximum, open })
    }

    /// The namespaces that count, as a part of a sentence: the first five names, and the number of the others.
    #[must_use]
    pub fn counting(&self) -> String {
        let names = || self.open.into_iter().flatten().map(|name| &**name);
        let named: Vec<&str> = names().take(MAX_NAMED).collect();
        let others = names().count() - named.len();
        match (named.split_last(), others) {
            (None, _) => "none".to_owned(),
            (Some((last, [])), 0) => (*last).to_owned(),
            (Some((last, first)), 0) => format!("{} and {last}", first.join(", ")),
            (Some(_), others) => format!("{} and {others} more", named.join(", ")),
        }
    }

    /// The text of [`SURPLUS_ANNOTATION`](crate::definitions::SURPLUS_ANNOTATION): tenant, maximum, and what counts.
    #[must_use]
    pub fn annotation(&self) -> String {
        format!("{};{};{}", self.tenant.name, self.maximum, self.counting())
    }
}

/// The namespaces that count as created by their tenant's owners and have pools, by tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct CreatedNamespaces {
    by_tenant: ShardedMap<BTreeSet<Arc<str>>>,
}

impl CreatedNamespaces {
    /// The namespaces of a tenant.
    pub(super) fn of(&self, tenant: &DeclaredTenant) -> Option<&BTreeSet<Arc<str>>> {
        self.by_tenant.get(&tenant.name)
    }

    /// Counts a namespace for its tenant.
    pub(super) fn add(&mut self, tenant: &DeclaredTenant, namespace: &Arc<str>) {
        let mut names = self.of(tenant).cloned().unwrap_or_default();
        if names.insert(namespace.clone()) {
            self.by_tenant.insert((&*tenant.name).into(), names);
        }
    }

    /// Counts a namespace no more.
    pub(super) fn remove(&mut self, tenant: &DeclaredTenant, namespace: &str) {
        let Some(mut names) = self.of(tenant).cloned() else { return };
        if names.remove(namespace) {
            if names.is_empty() {
                self.by_tenant.remove(&tenant.name);
            } else {
                self.by_tenant.insert((&*tenant.name).into(), names);
            }
        }
    }
}
