//! Capacity and prices per (type, zone, capacity type).

use std::collections::BTreeMap;

use croft_cloud::catalog::{Entry, builtin_entries};
use croft_scheduler::{CapacityType, Price};

use crate::{capacity_rule::CapacityRule, catalogue::Catalogue, params::wildcard, random::next};

/// Capacity and prices.
#[derive(Debug)]
pub struct Market {
    seed: u64,
    rules: Vec<CapacityRule>,
    entries: BTreeMap<String, Entry>,
    spot: BTreeMap<(String, String), Price>,
}

impl Market {
    /// A market of the catalogue's types that match one of the patterns.
    pub(crate) fn new(seed: u64, types: &[String], catalogue: Option<&Catalogue>) -> Self {
        let all = catalogue.map_or(builtin_entries(), |c| c.entries.as_slice());
        let entries = all
            .iter()
            .filter(|entry| types.iter().any(|pattern| wildcard(pattern, &entry.facts.name)))
            .map(|entry| (entry.facts.name.clone(), entry.clone()))
            .collect();
        let rules = catalogue.map(|c| c.missing.clone()).unwrap_or_default();
        let spot = catalogue.map(|c| c.spot.clone()).unwrap_or_default();
        Self { seed, rules, entries, spot }
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: CapacityRule) {
        self.rules.push(rule);
    }

    /// Removes all rules, so that capacity is unlimited.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Fixes a spot price.
    pub fn set_spot(&mut self, instance_type: &str, zone: &str, price: Price) {
        self.spot.insert((instance_type.to_owned(), zone.to_owned()), price);
    }

    pub(crate) fn entry(&self, instance_type: &str) -> Option<&Entry> {
        self.entries.get(instance_type)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(crate) fn offers(&self, instance_type: &str, zone: &str) -> bool {
        let letter = zone.chars().next_back();
        self.entry(instance_type).is_some_and(|e| letter.is_some_and(|l| e.zones.contains(l)))
    }

    /// Instances left; `None` for any number.
    pub(crate) fn left(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<u64> {
        self.rules.iter().rev().find(|r| r.matches(instance_type, zone, capacity_type)).and_then(|r| r.count)
    }

    /// Uses up one instance. Returns false if none is left.
    pub(crate) fn take(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> bool {
        match self.rules.iter_mut().rev().find(|r| r.matches(instance_type, zone, capacity_type)) {
            Some(CapacityRule { count: Some(0), .. }) => false,
            Some(CapacityRule { count: Some(count), .. }) => {
                *count -= 1;
                true
            }
            _ => true,
        }
    }

    /// The on-demand price. Types without a published price get one derived from their size, since a price list has
    /// every type.
    #[must_use]
    pub fn on_demand(&self, instance_type: &str) -> Price {
        let Some(entry) = self.entry(instance_type) else { return Price::MAX };
        entry.price.unwrap_or_else(|| {
            let f = &entry.facts;
            let devices = f.gpu.iter().chain(&f.accelerator).map(|d| i64::from(d.count)).sum::<i64>();
            let memory = i64::try_from(f.memory_mib / 1024).unwrap_or(i64::MAX);
            Price::from_micros(i64::from(f.vcpus) * 40_000 + memory * 4_000 + devices * 1_500_000)
        })
    }

    /// The spot price: between 30 and 60 % of on-demand, drawn from the seed.
    #[must_use]
    pub fn spot(&self, instance_type: &str, zone: &str) -> Price {
        if let Some(price) = self.spot.get(&(instance_type.to_owned(), zone.to_owned())) {
            return *price;
        }
        let mut state = self.seed;
        for byte in instance_type.bytes().chain(zone.bytes()) {
            state = state.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
        }
        let permille = 300 + i64::try_from(next(&mut state) % 300).unwrap_or(0);
        Price::from_micros(self.on_demand(instance_type).micros() / 1000 * permille)
    }

    /// Capacity for strategies that prefer it: 10 if unlimited.
    pub(crate) fn room(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> u64 {
        self.left(instance_type, zone, capacity_type).map_or(10, |left| left.min(10))
    }
}
