//! The bounds of the searches: for each kind of pool and of namespace, settled clusters under attack, and clusters while they are
//! edited.

use crate::{
    declared::{Declared, Edit, NamespaceKind, PoolKind, PoolSpec},
    model::Scope,
    pods::Alphabet,
};

/// The namespaces whose pods may be foreign. An exempt one's never are.
const ATTACKERS: [NamespaceKind; 5] = [
    NamespaceKind::None,
    NamespaceKind::Shared,
    NamespaceKind::SharedOther,
    NamespaceKind::OtherTenant,
    NamespaceKind::Owner,
];

fn each(of: impl Fn(PoolKind, NamespaceKind) -> Scope) -> Vec<Scope> {
    let of = &of;
    PoolKind::ALL.into_iter().flat_map(|pool| ATTACKERS.map(|namespace| of(pool, namespace))).collect()
}

/// Both modes, and every version of the pool that a namespace of this kind sees.
fn in_force(namespace: NamespaceKind) -> Vec<Declared> {
    let mut all = Vec::new();
    for policy_mode in [false, true] {
        for (no_execute, shared) in [(false, false), (false, true), (true, false), (true, true)] {
            if !shared || namespace == NamespaceKind::Shared {
                let pool = Some(PoolSpec { no_execute, shared });
                all.push(Declared { pool, ..Declared::all(policy_mode) });
            }
        }
    }
    all
}

/// Nothing is edited: pods are created and updated while a node joins and is registered.
#[must_use]
pub fn settled(alphabet: &Alphabet, max_updates: u8) -> Vec<Scope> {
    each(|pool, namespace| Scope {
        name: format!("settled, {pool:?}, {namespace:?}"),
        pool,
        namespace,
        initial: in_force(namespace),
        edits: Vec::new(),
        max_edits: 0,
        max_updates,
        alphabet: alphabet.clone(),
    })
}

/// Tenant, pool, effects and mode are edited, and a key comes.
#[must_use]
pub fn edited(alphabet: &Alphabet, max_edits: u8, max_updates: u8) -> Vec<Scope> {
    each(|pool, namespace| Scope {
        name: format!("edited {max_edits} times, {pool:?}, {namespace:?}"),
        pool,
        namespace,
        initial: [false, true]
            .into_iter()
            .flat_map(|policy_mode| {
                let with_tenant = Declared { pool: None, ..Declared::all(policy_mode) };
                [Declared::without_pool(policy_mode), with_tenant, Declared::all(policy_mode)]
            })
            .collect(),
        edits: Edit::ALL.into_iter().filter(|edit| *edit != Edit::CreateOtherTenant).collect(),
        max_edits,
        max_updates,
        alphabet: alphabet.clone(),
    })
}

/// The first tenant of a cluster comes.
#[must_use]
pub fn first_tenant(alphabet: &Alphabet) -> Vec<Scope> {
    each(|pool, namespace| Scope {
        name: format!("first tenant, {pool:?}, {namespace:?}"),
        pool,
        namespace,
        initial: [false, true].map(Declared::nothing).to_vec(),
        edits: vec![Edit::CreateTenant, Edit::CreatePool],
        max_edits: 2,
        max_updates: 0,
        alphabet: alphabet.clone(),
    })
}
