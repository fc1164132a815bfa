//! Closed periods as bytes: a header line, and a line for each account.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead as _,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{amount::Amount, node::Account};
use crate::{payer::Payer, segment};

/// The most amounts of a sheet: each takes some forty bytes of memory.
const MOST_AMOUNTS: usize = 100_000;
/// The format of the lines.
const FORMAT: u32 = 1;

/// A closed hour or day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Period {
    /// The last entry of the log that was taken into account.
    pub(super) through: u64,
    /// False if the log no longer had all that was paid.
    pub(super) is_complete: bool,
    /// The amounts. Periods share their accounts.
    pub(super) accounts: BTreeMap<Arc<Account>, Amount>,
}

/// Periods that are written together, by their beginning.
pub(super) type Sheet = BTreeMap<i64, Period>;

#[derive(Serialize, Deserialize)]
struct Header {
    ledger: u32,
    periods: Vec<Head>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(rename = "t")]
    at: i64,
    through: u64,
    complete: bool,
}

/// The amounts of an account: from the period of this position on, in so many periods, so much in each.
#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    account: Account,
    #[serde(rename = "usd")]
    runs: Vec<(usize, usize, Amount)>,
}

/// How finely accounts are told apart.
#[derive(Clone, Copy)]
enum Detail {
    Namespace,
    Tenant,
}

/// The account as `known` has it, so that equal ones are in memory once.
pub(super) fn share(known: &mut BTreeSet<Arc<Account>>, account: Account) -> Arc<Account> {
    if let Some(same) = known.get(&account) {
        return Arc::clone(same);
    }
    let account = Arc::new(account);
    known.insert(Arc::clone(&account));
    account
}

/// The sheet in at most `limit` bytes, with at most [`MOST_AMOUNTS`]. If it is larger, accounts are merged, first the workloads of
/// a namespace, then the namespaces of a tenant: amounts stay exact. Then the oldest periods are dropped.
pub(super) fn encode_within(sheet: &mut Sheet, limit: usize) -> Vec<u8> {
    let mut bytes = encode(sheet);
    for detail in [Detail::Namespace, Detail::Tenant] {
        if bytes.len() <= limit && amounts(sheet) <= MOST_AMOUNTS {
            return bytes;
        }
        let mut known = BTreeSet::new();
        sheet.values_mut().for_each(|period| merge(period, detail, &mut known));
        bytes = encode(sheet);
    }
    while (bytes.len() > limit || amounts(sheet) > MOST_AMOUNTS) && !sheet.is_empty() {
        let of_bytes = sheet.len() * limit / bytes.len();
        let of_amounts = sheet.len() * MOST_AMOUNTS / amounts(sheet).max(1);
        let kept = of_bytes.min(of_amounts).min(sheet.len() - 1);
        while sheet.len() > kept {
            sheet.pop_first();
        }
        bytes = encode(sheet);
    }
    bytes
}

fn amounts(sheet: &Sheet) -> usize {
    sheet.values().map(|period| period.accounts.len()).sum()
}

fn merge(period: &mut Period, detail: Detail, known: &mut BTreeSet<Arc<Account>>) {
    for (account, amount) in std::mem::take(&mut period.accounts) {
        let Payer { tenant, namespace, .. } = account.payer.clone();
        let namespace = match detail {
            Detail::Namespace => namespace,
            Detail::Tenant => String::new(),
        };
        let payer = Payer { tenant, namespace, workload: String::new() };
        let account = share(known, Account { payer, ..Account::clone(&account) });
        *period.accounts.entry(account).or_default() += amount;
    }
}

fn encode(sheet: &Sheet) -> Vec<u8> {
    let head = |(at, period): (&i64, &Period)| Head {
        at: *at,
        through: period.through,
        complete: period.is_complete,
    };
    let mut text = segment::line(&Header { ledger: FORMAT, periods: sheet.iter().map(head).collect() });
    let accounts: BTreeSet<&Account> =
        sheet.values().flat_map(|period| period.accounts.keys()).map(|account| &**account).collect();
    for account in accounts {
        let mut runs: Vec<(usize, usize, Amount)> = Vec::new();
        for (position, period) in sheet.values().enumerate() {
            let Some(amount) = period.accounts.get(account) else { continue };
            match runs.last_mut() {
                Some((first, count, same)) if *first + *count == position && same == amount => *count += 1,
                _ => runs.push((position, 1, *amount)),
            }
        }
        text.extend(segment::line(&Row { account: account.clone(), runs }));
    }
    segment::member(&text)
}

/// The beginning of a sheet's first period.
pub(super) fn first(bytes: &[u8]) -> Option<i64> {
    let mut lines = segment::reader(bytes).lines();
    let header: Header = serde_json::from_str(&lines.next()?.ok()?).ok()?;
    header.periods.first().filter(|_| header.ledger == FORMAT).map(|head| head.at)
}

/// Reads a sheet, up to its first damage. The second result is true if nothing of it is damaged.
pub(super) fn decode(bytes: &[u8]) -> (Sheet, bool) {
    let (text, is_intact) = segment::text(bytes);
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let header = lines.next().and_then(|line| serde_json::from_slice::<Header>(line).ok());
    let Some(Header { ledger: FORMAT, periods }) = header else { return (Sheet::new(), false) };
    let starts: Vec<i64> = periods.iter().map(|head| head.at).collect();
    let mut sheet: Sheet = periods
        .into_iter()
        .map(|Head { at, through, complete }| {
            (at, Period { through, is_complete: complete, accounts: BTreeMap::new() })
        })
        .collect();
    for line in lines {
        let row = serde_json::from_slice::<Row>(line).ok().filter(|_| line.ends_with(b"\n"));
        let Some(Row { account, runs }) = row else { return (incomplete(sheet), false) };
        let account = Arc::new(account);
        for (first, count, amount) in runs {
            for start in starts.iter().skip(first).take(count) {
                if let Some(period) = sheet.get_mut(start) {
                    period.accounts.insert(Arc::clone(&account), amount);
                }
            }
        }
    }
    if is_intact { (sheet, true) } else { (incomplete(sheet), false) }
}

fn incomplete(mut sheet: Sheet) -> Sheet {
    sheet.values_mut().for_each(|period| period.is_complete = false);
    sheet
}
