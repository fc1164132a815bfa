//! The namespaces that owners have created, and those beyond the number that their Tenant allows.
//!
//! Admission counts with the number that the leader last wrote, so creators at the same moment may create too many. The
//! leader alone lets namespaces in, so the number of those with pools and roles is never above the maximum. A namespace that
//! was let in counts until it is gone. `designs/tenant-objects.md` has the argument.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{Tenants, declarations::DeclaredTenant};

use crate::tenant::{
    let_in::{CAUTION, LetIn},
    state::State,
};

/// The namespaces under the prefix of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tenant) struct Created {
    pub(in crate::tenant) prefix: String,
    pub(in crate::tenant) maximum: u32,
    /// All of them.
    pub(in crate::tenant) count: usize,
    /// Namespaces beyond the maximum: they get no objects and no pools.
    pub(in crate::tenant) surplus: Vec<String>,
    /// Namespaces of which it isn't decided yet.
    waiting: Vec<String>,
}

impl Created {
    /// True if owners may create no more.
    pub(in crate::tenant) fn is_full(&self) -> bool {
        self.count >= maximum(self.maximum)
    }

    /// Namespaces that stay closed for now.
    pub(super) fn closed(&self) -> impl Iterator<Item = &String> {
        self.surplus.iter().chain(&self.waiting)
    }
}

fn maximum(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Decides which of the namespaces that owners created are let in, the oldest first.
pub(in crate::tenant) fn let_in(
    state: &mut State,
    view: &Tenants,
    mono: Duration,
) -> BTreeMap<String, Created> {
    let mut memory = std::mem::take(&mut state.objects.let_in);
    memory.names.retain(|name| state.namespaces.contains_key(name));
    let cautious = mono < *memory.cautious_until.get_or_insert(mono + CAUTION);
    let mut found = BTreeMap::new();
    for tenant in view.declarations().tenants() {
        if let Some(creation) = tenant.creation() {
            let mut created =
                Created { prefix: creation.prefix.clone(), maximum: creation.maximum, ..Created::default() };
            decide(state, view, tenant, (&mut memory, cautious), &mut created);
            found.insert(tenant.name.to_string(), created);
        }
    }
    memory.waits = found.values().any(|created| !created.waiting.is_empty());
    state.objects.let_in = memory;
    found
}

fn decide(
    state: &State,
    view: &Tenants,
    tenant: &DeclaredTenant,
    (memory, cautious): (&mut LetIn, bool),
    created: &mut Created,
) {
    let owns = |name: &str| view.tenancy(name).tenant().is_some_and(|owner| owner.id == tenant.id);
    let own = state.namespaces.iter().filter(|(name, _)| tenant.counts_as_created(name) && owns(name));
    let (open, mut closed): (Vec<_>, Vec<_>) =
        own.partition(|(name, facts)| facts.pools.is_some() || memory.names.contains(*name));
    created.count = open.len() + closed.len();
    // A namespace that is being deleted can't be let in any more.
    closed.retain(|(_, facts)| !facts.deleting);
    closed.sort_by_key(|(name, facts)| (facts.created, *name));
    if cautious {
        created.waiting = closed.into_iter().map(|(name, _)| name.clone()).collect();
        return;
    }
    let places = maximum(created.maximum).saturating_sub(open.len());
    let surplus = closed.split_off(places.min(closed.len()));
    memory.names.extend(closed.into_iter().map(|(name, _)| name.clone()));
    created.surplus = surplus.into_iter().map(|(name, _)| name.clone()).collect();
}
