//! The book: what was paid in each hour, by account.

use std::{
    collections::BTreeMap,
    ops::{Add, Sub},
};

use serde::{Deserialize, Serialize};

use super::{
    amount::Amount,
    node::{Account, NodeCost},
};

/// Milliseconds of an hour.
pub const HOUR_MILLIS: i64 = 3_600_000;

/// The beginning of the hour of a time.
#[must_use]
pub const fn hour_of(at: i64) -> i64 {
    at.div_euclid(HOUR_MILLIS).saturating_mul(HOUR_MILLIS)
}

/// An instance that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Open {
    since: i64,
    cost: NodeCost,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The beginning of the hour, in milliseconds since 1970.
    pub hour: i64,
    /// Hours from then on that it sums: 24 for a day whose hours are no longer kept.
    pub hours: u32,
    /// The account.
    pub account: Account,
    /// The amount that was paid.
    pub amount: Amount,
}

/// Lines of a time, as the page gives them to a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// Since when costs are known.
    pub begins: Option<i64>,
    /// False if a closed hour or day lacks costs.
    pub is_complete: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Amounts by hour and account, and the instances that run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    open: BTreeMap<String, Open>,
    /// The cost per hour of those that run, kept up to date with them: a curve asks for it at each of its points.
    rates: BTreeMap<Account, Amount>,
    hours: BTreeMap<i64, BTreeMap<Account, Amount>>,
}

impl Book {
    /// Takes in that the instance `id` is like `cost` from `at` on, or is no longer paid for. Changes of one instance come in order;
    /// one that is older than the last counts from the last on.
    pub fn observe(&mut self, id: &str, at: i64, cost: Option<NodeCost>) {
        let since = match self.open.remove(id) {
            Some(open) => {
                self.charge(&open.cost, open.since, at);
                self.change_rates(&open.cost, Sub::sub);
                at.max(open.since)
            }
            None => at,
        };
        if let Some(cost) = cost {
            self.change_rates(&cost, Add::add);
            self.open.insert(id.to_owned(), Open { since, cost });
        }
    }

    /// Charges what runs up to `at`.
    pub fn settle(&mut self, at: i64) {
        let mut open = std::mem::take(&mut self.open);
        for instance in open.values_mut().filter(|instance| instance.since < at) {
            self.charge(&instance.cost, instance.since, at);
            instance.since = at;
        }
        self.open = open;
    }

    /// Ids of the instances that run.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        self.open.keys().map(String::as_str)
    }

    /// The cost per hour of the instances that run now, by account.
    #[must_use]
    pub const fn rates(&self) -> &BTreeMap<Account, Amount> {
        &self.rates
    }

    fn change_rates(&mut self, cost: &NodeCost, change: fn(Amount, Amount) -> Amount) {
        for (account, amount) in cost.charge(HOUR_MILLIS.unsigned_abs()) {
            let rate = change(self.rates.get(&account).copied().unwrap_or_default(), amount);
            if rate > Amount::ZERO {
                self.rates.insert(account, rate);
            } else {
                self.rates.remove(&account);
            }
        }
    }

    /// The lines of hours that begin from `from` on and before `to`.
    pub fn lines(&self, from: i64, to: i64) -> impl Iterator<Item = Line> {
        let hours = if from < to { self.hours.range(from..to) } else { self.hours.range(from..from) };
        hours.flat_map(|(hour, accounts)| {
            accounts.iter().map(|(account, amount)| Line {
                hour: *hour,
                hours: 1,
                account: account.clone(),
                amount: *amount,
            })
        })
    }

    /// Forgets hours that begin before `from`.
    pub fn forget(&mut self, from: i64) {
        self.hours = self.hours.split_off(&from);
    }

    fn charge(&mut self, cost: &NodeCost, from: i64, to: i64) {
        let mut from = from;
        while from < to {
            let hour = hour_of(from);
            let until = hour.saturating_add(HOUR_MILLIS).min(to);
            for (account, amount) in cost.charge(until.abs_diff(from)) {
                *self.hours.entry(hour).or_default().entry(account).or_default() += amount;
            }
            from = until;
        }
    }
}
