//! The costs of one node, and who pays them.

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use crate::payer::{Payer, Purpose, Share};

/// An account of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Account {
    /// The payer.
    pub payer: Payer,
    /// The pool.
    pub pool: String,
    /// The template of the pool; empty if it has only one kind of node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// `on-demand`, `spot` or `reserved`; `reserved` is paid for by a commitment.
    pub capacity_type: String,
    /// The purpose.
    pub purpose: Purpose,
}

impl Account {
    /// True for capacity that a commitment pays for: its amounts are list prices, of which no hour is billed.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.capacity_type == "reserved"
    }
}

/// How far the life of a node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It isn't initialized.
    Starting,
    /// It takes pods.
    Working,
    /// It is being removed.
    Draining,
}

/// A node while nothing about it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCost {
    /// The pool.
    pub pool: String,
    /// The template of the pool; empty if it has only one kind of node.
    pub template: String,
    /// The tenant that pays for what no pod requests: the only one of the pool, else none.
    pub tenant: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// Its price, in millionths of a dollar per hour; of a reserved instance the list price.
    pub price: i64,
    /// Allocatable CPU, in thousandths.
    pub cpu_millis: u64,
    /// Allocatable memory.
    pub memory_bytes: u64,
    /// Its stage.
    pub stage: Stage,
    /// The requests.
    pub shares: Vec<Share>,
}

impl NodeCost {
    /// The costs of the node in `millis`, by account. The amounts add up to price times time exactly. Half of the price is for CPU,
    /// half for memory; requests beyond what is allocatable are paid in proportion.
    #[must_use]
    pub fn charge(&self, millis: u64) -> Vec<(Account, Amount)> {
        let whole = Amount::of(self.price, millis);
        let (cpu, memory) = (u128::from(self.cpu_millis.max(1)), u128::from(self.memory_bytes.max(1)));
        let weight = |share: &Share| {
            u128::from(share.cpu_millis)
                .saturating_mul(memory)
                .saturating_add(u128::from(share.memory_bytes).saturating_mul(cpu))
        };
        let mut weights: Vec<u128> = self.shares.iter().map(weight).collect();
        let requested = weights.iter().fold(0_u128, |sum, weight| sum.saturating_add(*weight));
        weights.push(cpu.saturating_mul(memory).saturating_mul(2).saturating_sub(requested));
        let rest = match self.stage {
            Stage::Starting => Purpose::Starting,
            Stage::Working => Purpose::Idle,
            Stage::Draining => Purpose::Draining,
        };
        let account = |payer: &Payer, purpose| Account {
            payer: payer.clone(),
            pool: self.pool.clone(),
            template: self.template.clone(),
            capacity_type: self.capacity_type.clone(),
            purpose,
        };
        let own = Payer { tenant: self.tenant.clone(), ..Payer::default() };
        let accounts =
            self.shares.iter().map(|share| account(&share.payer, share.purpose)).chain([account(&own, rest)]);
        accounts.zip(whole.divide(&weights)).filter(|(_, amount)| *amount > Amount::ZERO).collect()
    }
}
