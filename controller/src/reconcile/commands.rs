//! Commands in flight: claims that replace others, read from their annotations.
//!
//! A command is nothing but annotations on the claims that it created, so no restart loses one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::NodeClaim;

use crate::{definitions::keys, state::Snapshot};

/// A command in flight.
#[derive(Debug)]
pub struct Command<'a> {
    /// How many claims it created.
    pub(crate) expected: usize,
    /// The disruption reason.
    pub(crate) reason: &'a str,
    /// Its claims that exist.
    pub(crate) replacements: BTreeMap<&'a str, &'a Arc<NodeClaim>>,
    /// The claims to be replaced that exist.
    pub(crate) replaced: BTreeMap<&'a str, &'a Arc<NodeClaim>>,
}

/// All commands in flight.
#[derive(Debug, Default)]
pub struct Commands<'a> {
    by_id: BTreeMap<&'a str, Command<'a>>,
    replacements: BTreeSet<&'a str>,
    replaced: BTreeSet<&'a str>,
    pools: BTreeSet<&'a str>,
}

impl<'a> Commands<'a> {
    /// Reads the commands from the claims. A command whose replaced claims are all gone is completed.
    #[must_use]
    pub fn read(snapshot: &'a Snapshot) -> Self {
        let mut commands = Self::default();
        for (name, claim) in snapshot.replacements() {
            let Some(annotations) = &claim.metadata.annotations else { continue };
            let (Some(id), Some(replaces)) = (annotations.get(keys::MOVE), annotations.get(keys::REPLACES))
            else {
                continue;
            };
            let there: Vec<_> =
                replaces.split(',').filter_map(|r| snapshot.claims().get_key_value(r)).collect();
            if there.is_empty() {
                continue;
            }
            let (id, expected) = id.split_once('/').unwrap_or((id, "1"));
            let command = commands.by_id.entry(id).or_insert_with(|| Command {
                expected: expected.parse().unwrap_or(1),
                reason: annotations.get(keys::DISRUPTION_REASON).map_or("", String::as_str),
                replacements: BTreeMap::new(),
                replaced: BTreeMap::new(),
            });
            command.replacements.insert(name, claim);
            commands.replacements.insert(name);
            commands.pools.insert(&claim.spec.pool);
            for (name, claim) in there {
                command.replaced.insert(name, claim);
                commands.replaced.insert(name);
                commands.pools.insert(&claim.spec.pool);
            }
        }
        commands
    }

    /// The commands by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, &Command<'a>)> {
        self.by_id.iter().map(|(id, command)| (*id, command))
    }

    /// True if the command is in flight.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// True for a claim that replaces others which still exist.
    #[must_use]
    pub fn is_replacement(&self, claim: &str) -> bool {
        self.replacements.contains(claim)
    }

    /// True for a claim that is to be replaced.
    #[must_use]
    pub fn is_replaced(&self, claim: &str) -> bool {
        self.replaced.contains(claim)
    }

    /// Nodes of this pool that are to be replaced.
    #[must_use]
    pub fn replaced_nodes(&self, snapshot: &'a Snapshot, pool: &str) -> Vec<&'a str> {
        let replaced = self.replaced.iter().filter_map(|name| snapshot.claims().get(*name));
        replaced
            .filter(|claim| claim.spec.pool == pool)
            .filter_map(|claim| Some(snapshot.node_of(claim)?.0))
            .collect()
    }

    /// True while a command of this pool is in flight: the capacity of its replacements is reserved.
    #[must_use]
    pub fn concern(&self, pool: &str) -> bool {
        self.pools.contains(pool)
    }
}
