//! The division of a tenant's quota among its namespaces.
//!
//! Kubernetes enforces a quota in one namespace, in the API server's own admission, without races. So each namespace gets a
//! ResourceQuota with its share, and the shares never add up to more than the tenant's quota. `designs/tenant-quota.md`
//! has the argument.
//!
//! ```text
//!  count of a namespace = max(spec.hard, status.hard, status.used, a raise in flight)
//!
//!  a share is raised   only by what the sum of all counts leaves of the quota
//!  a share is lowered  at any time; it counts as before until status.hard shows it
//! ```
//!
//! Every namespace keeps a reserve, so that its first pods don't wait. One namespace, the holder, has the rest. Another
//! becomes the holder when the API server refused its pods, or when it is its turn once little is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::amount::Amount;

use super::amounts::{Amounts, QuotaFacts, millis, step};

/// The reserves of all namespaces together are this part of the quota, or a usual pod for each, and at most half of what is
/// unused.
const RESERVED_PART: i64 = 8;
/// A share isn't changed this soon after its usage changed. The quota controller counts again when a share changes, from a
/// cache that may lack the pods of the last moment.
const QUIET: Duration = Duration::from_millis(300);
/// A change waits at most this long for that.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// A holder isn't replaced sooner.
const LEAST_TENURE: Duration = Duration::from_secs(1);
/// The turn of a holder while little is left. It doubles while no namespace uses its turn.
const TURN: Duration = Duration::from_secs(2);
const LONGEST_TURN: Duration = Duration::from_secs(60);
/// A refusal counts as demand for this long.
const DEMAND: Duration = Duration::from_secs(60);
/// The reserves of others go to a holder whose pods are refused, for this long.
const STARVES: Duration = Duration::from_secs(10);
/// No share is raised this soon after the start or a takeover: the watch then shows the writes of a former leader.
const CAUTION: Duration = Duration::from_secs(2);

/// A quota, and the namespaces that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tenant) struct SharedQuota {
    /// In thousandths.
    pub(in crate::tenant) total: Amounts,
    /// Namespaces that accept objects.
    pub(in crate::tenant) namespaces: Vec<String>,
    /// Namespaces that are being deleted. Their pods still count.
    pub(in crate::tenant) leaving: Vec<String>,
    /// The tenant's pods.
    pub(in crate::tenant) pods: i64,
}

impl SharedQuota {
    pub(in crate::tenant) fn new(
        total: &BTreeMap<String, Amount>,
        namespaces: &[&str],
        leaving: &[&str],
        pods: usize,
    ) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let entry = |(name, Amount(text)): (&String, &Amount)| Some((name.clone(), millis(text)?));
        Self {
            total: total.iter().filter_map(entry).collect(),
            namespaces: owned(namespaces),
            leaving: owned(leaving),
            pods: i64::try_from(pods).unwrap_or(i64::MAX),
        }
    }

    /// Nothing of each resource.
    pub(in crate::tenant) fn nothing(&self) -> Amounts {
        self.total.keys().map(|name| (name.clone(), 0)).collect()
    }
}

/// A share as it is observed.
#[derive(Clone, Copy, Debug)]
pub(in crate::tenant) struct Share<'f> {
    pub(in crate::tenant) version: &'f str,
    pub(in crate::tenant) facts: &'f QuotaFacts,
}

/// The divisions of all tenants.
#[derive(Debug, Default)]
pub struct Shares {
    tenants: BTreeMap<Arc<str>, Division>,
    /// From when on shares may be raised; `None` before the first pass of a leader.
    cautious_until: Option<Duration>,
}

impl Shares {
    /// Begins to lead.
    pub(in crate::tenant) fn take_over(&mut self) {
        self.cautious_until = None;
        self.tenants.clear();
    }

    /// The API server refused pods of a namespace for its share.
    pub(in crate::tenant) fn observe_refusal(&mut self, namespace: &str, mono: Duration) {
        for division in self.tenants.values_mut() {
            if let Some(seen) = division.seen.get_mut(namespace) {
                seen.refused = Some(mono);
            }
        }
    }

    /// Forgets tenants without a shared quota.
    pub(in crate::tenant) fn retain(&mut self, shared: &BTreeMap<Arc<str>, SharedQuota>) {
        self.tenants.retain(|tenant, _| shared.contains_key(tenant));
    }

    /// The shares that are to be written, by namespace.
    pub(in crate::tenant) fn divide(
        &mut self,
        tenant: &Arc<str>,
        quota: &SharedQuota,
        shares: &BTreeMap<&str, Share<'_>>,
        mono: Duration,
    ) -> BTreeMap<String, Amounts> {
        let may_raise = mono >= *self.cautious_until.get_or_insert(mono + CAUTION);
        self.tenants.entry(Arc::clone(tenant)).or_default().divide(quota, shares, may_raise, mono)
    }

    /// The next time at which a share may change without any news.
    pub(in crate::tenant) fn next(&self, mono: Duration) -> Option<Duration> {
        let next = self.tenants.values().filter_map(|division| division.next).filter(|at| *at > mono);
        next.chain(self.cautious_until.filter(|at| *at > mono)).min()
    }
}

/// The memory of a namespace.
#[derive(Clone, Debug, Default)]
struct Seen {
    used: Amounts,
    /// The amounts that it counted for.
    count: Amounts,
    changed: Duration,
    grew: Option<Duration>,
    refused: Option<Duration>,
    /// The beginning of its last turn as the holder.
    held: Option<Duration>,
    /// Since when a change of its share is due.
    due: Option<Duration>,
    /// A raise that was requested, with the version of the share that it applies to. As long as the share has this version
    /// the raise may still take effect, and once it has another, it can't any more.
    raise: Option<(String, Amounts)>,
}

/// The division of one tenant's quota.
#[derive(Clone, Debug, Default)]
struct Division {
    seen: BTreeMap<String, Seen>,
    holder: Option<String>,
    since: Duration,
    turn: Duration,
    /// Growth was seen in this turn.
    used_turn: bool,
    next: Option<Duration>,
}

fn get(amounts: &Amounts, name: &str) -> i64 {
    amounts.get(name).copied().unwrap_or_default()
}

/// The figures of one pass.
struct Figures<'q> {
    quota: &'q SharedQuota,
    /// The unused amounts.
    free: Amounts,
    /// The amounts that no count covers; negative if the counts are above the quota.
    left: Amounts,
    /// The amounts that every namespace should be able to use at once.
    reserve: Amounts,
    /// Some reserve is nothing: turns decide.
    scarce: bool,
}

impl Division {
    fn divide(
        &mut self,
        quota: &SharedQuota,
        shares: &BTreeMap<&str, Share<'_>>,
        may_raise: bool,
        mono: Duration,
    ) -> BTreeMap<String, Amounts> {
        self.observe(quota, shares, mono);
        // Namespaces that are being deleted only count.
        let staying: BTreeSet<&str> = quota.namespaces.iter().map(String::as_str).collect();
        let is_staying = |(name, _): &(&&str, &Share<'_>)| staying.contains(**name);
        let shares: BTreeMap<&str, Share<'_>> =
            shares.iter().filter(is_staying).map(|(name, share)| (*name, *share)).collect();
        let shares = &shares;
        let mut figures = self.figures(quota, shares, self.is_starved(mono));
        self.choose_holder(&figures, shares, mono);
        let targets = self.targets(&figures, shares);
        let wanting: BTreeSet<&str> = targets
            .iter()
            .filter(|(name, target)| self.wants(&figures, name, target, shares))
            .map(|(name, _)| name.as_str())
            .collect();
        let mut writes = BTreeMap::new();
        for name in self.lowered(&figures, &targets, &wanting, shares) {
            if let Some(target) = targets.get(name.as_str()).filter(|_| self.is_quiet(&name, mono)) {
                let lower = shares.get(name.as_str()).map(|share| lowest(&share.facts.declared, target));
                writes.extend(lower.map(|lower| (name, lower)));
            }
        }
        // While a share is unknown, so is what its namespace uses.
        let known =
            |name: &String| shares.get(name.as_str()).is_some_and(|share| is_known(share, &quota.total));
        if may_raise && quota.namespaces.iter().all(known) {
            let holder = self.holder.clone();
            let (first, rest): (Vec<&str>, Vec<&str>) =
                wanting.iter().copied().partition(|name| Some(*name) != holder.as_deref() || figures.scarce);
            for name in first.into_iter().chain(rest) {
                let (Some(target), Some(share)) = (targets.get(name), shares.get(name)) else { continue };
                if writes.contains_key(name) || !self.is_quiet(name, mono) {
                    continue;
                }
                writes.extend(
                    self.raise(&mut figures, name, target, share).map(|hard| (name.to_owned(), hard)),
                );
            }
        }
        for (name, seen) in &mut self.seen {
            if !wanting.contains(name.as_str()) && !writes.contains_key(name) {
                seen.due = None;
            }
        }
        writes
    }

    /// Takes in what namespaces use.
    fn observe(&mut self, quota: &SharedQuota, shares: &BTreeMap<&str, Share<'_>>, mono: Duration) {
        let (present, leaving): (BTreeSet<&str>, BTreeSet<&str>) = (
            quota.namespaces.iter().map(String::as_str).collect(),
            quota.leaving.iter().map(String::as_str).collect(),
        );
        self.seen.retain(|name, _| present.contains(name.as_str()) || leaving.contains(name.as_str()));
        for (name, share) in shares {
            let seen = self.seen.entry((*name).to_owned()).or_insert_with(|| Seen {
                used: share.facts.used.clone(),
                changed: mono,
                ..Seen::default()
            });
            if seen.used != share.facts.used {
                let grew = share.facts.used.iter().any(|(name, used)| *used > get(&seen.used, name));
                seen.changed = mono;
                seen.used.clone_from(&share.facts.used);
                if grew {
                    seen.grew = Some(mono);
                    seen.refused = None;
                }
                self.used_turn = true;
            }
            if seen.raise.as_ref().is_some_and(|(version, _)| version != share.version) {
                (seen.raise, seen.due) = (None, None);
            }
            let raise = seen.raise.as_ref().map(|(_, hard)| hard);
            let count = |name: &String| {
                let facts = share.facts;
                let amounts = [Some(&facts.declared), facts.allowed.as_ref(), Some(&facts.used), raise];
                (name.clone(), amounts.into_iter().flatten().map(|a| get(a, name)).max().unwrap_or_default())
            };
            seen.count = quota.total.keys().map(count).collect();
        }
    }

    /// True if the holder's pods are refused though it has had all but the reserves.
    fn is_starved(&self, mono: Duration) -> bool {
        let seen = self.holder.as_ref().and_then(|holder| self.seen.get(holder));
        seen.and_then(|seen| seen.refused)
            .is_some_and(|at| at > self.since + LEAST_TENURE && mono.saturating_sub(at) < STARVES)
    }

    fn figures<'q>(
        &self,
        quota: &'q SharedQuota,
        shares: &BTreeMap<&str, Share<'_>>,
        is_starved: bool,
    ) -> Figures<'q> {
        let sum = |of: &dyn Fn(&Seen) -> i64| -> i64 {
            let sum: i128 = self.seen.values().map(|seen| i128::from(of(seen))).sum();
            i64::try_from(sum).unwrap_or(i64::MAX)
        };
        let number = i64::try_from(shares.len().max(1)).unwrap_or(i64::MAX);
        let mut figures = Figures {
            quota,
            free: Amounts::new(),
            left: Amounts::new(),
            reserve: Amounts::new(),
            scarce: false,
        };
        for (name, total) in &quota.total {
            let used = sum(&|seen| get(&seen.used, name));
            let free = total.saturating_sub(used).max(0);
            // A reserve that the tenant's usual pod doesn't fit in is of no use.
            let usual = if quota.pods > 0 { used / quota.pods } else { 0 }.max(step(name));
            let each = (total / RESERVED_PART / number).max(usual).min(free / 2 / number);
            let each = each - each % step(name);
            let reserve = if each < usual || is_starved { 0 } else { each };
            figures.scarce |= reserve == 0 && *total > 0;
            figures.free.insert(name.clone(), free);
            figures.left.insert(name.clone(), total.saturating_sub(sum(&|seen| get(&seen.count, name))));
            figures.reserve.insert(name.clone(), reserve);
        }
        figures
    }

    fn choose_holder(&mut self, figures: &Figures<'_>, shares: &BTreeMap<&str, Share<'_>>, mono: Duration) {
        if self.turn.is_zero() {
            self.turn = TURN;
        }
        if self.used_turn && self.turn > TURN {
            self.turn = TURN;
        }
        self.next = None;
        let current = self.holder.clone().filter(|holder| shares.contains_key(holder.as_str()));
        let tenure = mono.saturating_sub(self.since);
        let others: Vec<(&str, &Seen)> = shares
            .keys()
            .filter(|name| Some(**name) != current.as_deref())
            .filter_map(|name| Some((*name, self.seen.get(*name)?)))
            .collect();
        let longest_ago = |list: &[(&str, &Seen)]| -> Option<String> {
            list.iter().min_by_key(|(name, seen)| (seen.held, *name)).map(|(name, _)| (*name).to_owned())
        };
        let refused: Vec<_> = others
            .iter()
            .copied()
            .filter(|(_, seen)| seen.refused.is_some_and(|at| mono.saturating_sub(at) < DEMAND))
            .collect();
        let is_exhausted = |seen: &Seen| {
            figures.quota.total.keys().any(|name| {
                let headroom = get(&seen.count, name) - get(&seen.used, name);
                headroom <= get(&figures.reserve, name) / 2
            })
        };
        let has_free = figures.free.values().any(|free| *free > 0);
        let next = if current.is_none() {
            longest_ago(&others)
        } else if !refused.is_empty() && tenure >= LEAST_TENURE {
            longest_ago(&refused)
        } else if has_free && tenure >= self.turn {
            let exhausted: Vec<_> = others.iter().copied().filter(|(_, seen)| is_exhausted(seen)).collect();
            let active = |seen: &Seen| seen.grew.is_some_and(|at| mono.saturating_sub(at) < LONGEST_TURN);
            let growing: Vec<_> = exhausted.iter().copied().filter(|(_, seen)| active(seen)).collect();
            match (growing.is_empty(), figures.scarce) {
                (false, _) => longest_ago(&growing),
                // Whether a namespace without a reserve needs one can't be seen.
                (true, true) => longest_ago(&exhausted),
                (true, false) => None,
            }
        } else {
            None
        };
        let (is_asked, is_shared) = (!refused.is_empty(), figures.scarce || !others.is_empty());
        if let Some(next) = next {
            if !std::mem::take(&mut self.used_turn) && current.is_some() {
                self.turn = (self.turn * 2).min(LONGEST_TURN);
            }
            if let Some(seen) = self.seen.get_mut(&next) {
                seen.held = Some(mono);
            }
            (self.holder, self.since) = (Some(next), mono);
        }
        if is_asked {
            self.next = Some(self.since + LEAST_TENURE);
        } else if has_free && is_shared {
            self.next = Some(self.since + self.turn);
        }
    }

    /// The share that each namespace should have.
    fn targets(
        &self,
        figures: &Figures<'_>,
        shares: &BTreeMap<&str, Share<'_>>,
    ) -> BTreeMap<String, Amounts> {
        let others = i64::try_from(shares.len().saturating_sub(1)).unwrap_or(i64::MAX);
        let target = |name: &str| -> Amounts {
            let used = self.seen.get(name).map(|seen| &seen.used);
            let is_holder = self.holder.as_deref() == Some(name);
            let amount = |resource: &String| {
                let reserve = get(&figures.reserve, resource);
                let own = if is_holder {
                    get(&figures.free, resource).saturating_sub(reserve.saturating_mul(others)).max(reserve)
                } else {
                    reserve
                };
                let used = used.map(|used| get(used, resource)).unwrap_or_default();
                (resource.clone(), used.saturating_add(own))
            };
            figures.quota.total.keys().map(amount).collect()
        };
        shares.keys().map(|name| ((*name).to_owned(), target(name))).collect()
    }

    /// True if a namespace should get more now.
    fn wants(
        &self,
        figures: &Figures<'_>,
        name: &str,
        target: &Amounts,
        shares: &BTreeMap<&str, Share<'_>>,
    ) -> bool {
        let (Some(seen), Some(share)) = (self.seen.get(name), shares.get(name)) else { return false };
        if seen.raise.is_some() {
            return true;
        }
        let is_holder = self.holder.as_deref() == Some(name);
        figures.quota.total.keys().any(|resource| {
            let (declared, target) = (get(&share.facts.declared, resource), get(target, resource));
            let headroom = declared - get(&seen.used, resource);
            let wanted = target - get(&seen.used, resource);
            declared < target && (headroom.saturating_mul(2) < wanted || (is_holder && figures.scarce))
        })
    }

    /// The namespaces whose share is above its target, if others want what isn't left.
    fn lowered(
        &self,
        figures: &Figures<'_>,
        targets: &BTreeMap<String, Amounts>,
        wanting: &BTreeSet<&str>,
        shares: &BTreeMap<&str, Share<'_>>,
    ) -> BTreeSet<String> {
        let missing = |resource: &String| -> bool {
            let wanted = |name: &&str| {
                let declared = shares.get(name).map(|share| get(&share.facts.declared, resource));
                let target = targets.get(*name).map(|target| get(target, resource));
                i128::from(target.unwrap_or_default().saturating_sub(declared.unwrap_or_default()).max(0))
            };
            let wanted: i128 = wanting.iter().map(wanted).sum();
            wanted > i128::from(get(&figures.left, resource))
        };
        let missing: BTreeSet<&String> =
            figures.quota.total.keys().filter(|resource| missing(resource)).collect();
        let is_above = |(name, target): &(&String, &Amounts)| {
            let Some(share) = shares.get(name.as_str()) else { return false };
            missing.iter().any(|resource| get(&share.facts.declared, resource) > get(target, resource))
        };
        targets.iter().filter(is_above).map(|(name, _)| name.clone()).collect()
    }

    /// Returns true if the usage of a namespace hasn't changed lately. Notes that a change of its share is due.
    fn is_quiet(&mut self, name: &str, mono: Duration) -> bool {
        let Some(seen) = self.seen.get_mut(name) else { return false };
        let due = *seen.due.get_or_insert(mono);
        let quiet = seen.changed + QUIET;
        let at = quiet.min(due + MOST_WAIT);
        if mono < at {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
        mono >= at
    }

    /// The raised share, within what is left; a raise that was requested for the same version is requested again.
    fn raise(
        &mut self,
        figures: &mut Figures<'_>,
        name: &str,
        target: &Amounts,
        share: &Share<'_>,
    ) -> Option<Amounts> {
        let seen = self.seen.get_mut(name)?;
        if let Some((_, hard)) = &seen.raise {
            return Some(hard.clone());
        }
        // A change that the quota controller hasn't seen yet comes first.
        if share.facts.allowed.as_ref() != Some(&share.facts.declared) {
            return None;
        }
        let mut hard = share.facts.declared.clone();
        for resource in figures.quota.total.keys() {
            let (declared, left) = (get(&hard, resource), get(&figures.left, resource).max(0));
            let more = get(target, resource).saturating_sub(declared).clamp(0, left);
            let counted = get(&seen.count, resource);
            hard.insert(resource.clone(), declared + more);
            // An amount that the count covers already takes nothing of what is left.
            let taken = (declared + more).saturating_sub(counted).max(0);
            figures.left.entry(resource.clone()).and_modify(|left| *left -= taken);
        }
        if hard == share.facts.declared {
            return None;
        }
        seen.raise = Some((share.version.to_owned(), hard.clone()));
        Some(hard)
    }
}

/// True if the API server's admission knows this share, for these resources. Of a kind that doesn't exist nothing is used, and
/// it admits nothing either.
pub(in crate::tenant) fn is_known(share: &Share<'_>, total: &Amounts) -> bool {
    share.facts.declared.keys().eq(total.keys()) && share.facts.is_enforced()
}

fn lowest(declared: &Amounts, target: &Amounts) -> Amounts {
    target.iter().map(|(name, target)| (name.clone(), get(declared, name).min(*target))).collect()
}

#[cfg(test)]
mod tests;
