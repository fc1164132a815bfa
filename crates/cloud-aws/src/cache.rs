//! Caches answers of AWS, and serves stale ones while AWS can't be reached.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use croft_cloud::Fault;
use tokio::time::Instant;

/// A cache of answers by question.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    fresh_for: Duration,
    /// Locked during a call, so that a second caller waits for the answer instead of calling as well.
    asking: tokio::sync::Mutex<()>,
    entries: Mutex<BTreeMap<K, Entry<V>>>,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    at: Instant,
    /// Something has happened since that changes the answer.
    outdated: bool,
}

/// Answers that were not requested for this long are removed.
const FORGET: Duration = Duration::from_secs(24 * 3600);

impl<K: Ord + Clone, V> Cache<K, V> {
    pub(crate) fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, asking: tokio::sync::Mutex::new(()), entries: Mutex::new(BTreeMap::new()) }
    }

    /// The answer for `key`: the cached one while it is fresh, else the result of `ask`, else, if AWS can't be reached,
    /// the cached one with the fault.
    pub(crate) async fn get<F>(&self, key: &K, ask: F) -> Result<(Arc<V>, Option<Fault>), Fault>
    where
        F: Future<Output = Result<V, Fault>>,
    {
        let mut kept = self.kept(key);
        if let Some((value, true)) = kept {
            return Ok((value, None));
        }
        let _turn = match (self.asking.try_lock(), &kept) {
            (Ok(turn), _) => turn,
            // A call is in flight, and the cached answer serves until it returns.
            (Err(_), Some((value, _))) => return Ok((Arc::clone(value), None)),
            (Err(_), None) => {
                let turn = self.asking.lock().await;
                kept = self.kept(key);
                if let Some((value, true)) = kept {
                    return Ok((value, None));
                }
                turn
            }
        };
        match ask.await {
            Ok(value) => {
                let value = Arc::new(value);
                let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
                entries.retain(|_, entry| entry.at.elapsed() < FORGET);
                entries.insert(key.clone(), Entry::new(Arc::clone(&value)));
                Ok((value, None))
            }
            // A definite "not found" replaces the cached answer; a failed call doesn't.
            Err(fault) => match kept {
                Some((value, _)) if !is_an_answer(&fault) => Ok((value, Some(fault))),
                _ => Err(fault),
            },
        }
    }

    /// The cached answer, and whether it is fresh.
    fn kept(&self, key: &K) -> Option<(Arc<V>, bool)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).map(|entry| (Arc::clone(&entry.value), entry.is_fresh(self.fresh_for)))
    }

    /// Refreshes the answer if it expires within `ahead`, or if there is none. No caller waits for this.
    pub(crate) async fn refresh<F>(&self, key: &K, ahead: Duration, ask: F) -> Result<(), Fault>
    where
        F: Future<Output = Result<V, Fault>>,
    {
        let _turn = self.asking.lock().await;
        let until = self.fresh_for.saturating_sub(ahead);
        let good = {
            let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.get(key).is_some_and(|entry| entry.is_fresh(until))
        };
        if !good {
            let entry = Entry::new(Arc::new(ask.await?));
            self.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), entry);
        }
        Ok(())
    }

    /// Has the next request call AWS. The answers serve on while AWS can't be reached.
    pub(crate) fn outdate(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values_mut().for_each(|entry| entry.outdated = true);
    }

    /// Removes all answers, so that the next request calls AWS.
    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl<V> Entry<V> {
    fn new(value: Arc<V>) -> Self {
        Self { value, at: Instant::now(), outdated: false }
    }

    fn is_fresh(&self, fresh_for: Duration) -> bool {
        !self.outdated && self.at.elapsed() < fresh_for
    }
}

fn is_an_answer(fault: &Fault) -> bool {
    use croft_cloud::FaultClass::{Exists, Invalid, NotFound};
    matches!(fault.class, NotFound | Invalid | Exists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::of_code;

    fn fault(code: &str) -> Fault {
        of_code("Describe", code.to_owned(), String::new(), Some(400))
    }

    #[tokio::test]
    async fn stale_answer_is_served_while_aws_is_unreachable() {
        let fresh = Cache::new(Duration::from_secs(3600));
        assert_eq!(*fresh.get(&1, async { Ok("a") }).await.unwrap().0, "a");
        assert_eq!(*fresh.get(&1, async { Ok("b") }).await.unwrap().0, "a", "kept while fresh");
        fresh.outdate();
        let (value, error) = fresh.get(&1, async { Err(fault("RequestLimitExceeded")) }).await.unwrap();
        assert!(*value == "a" && error.is_some(), "AWS is asked, and the answer serves on");
        assert_eq!(*fresh.get(&1, async { Ok("b") }).await.unwrap().0, "b");

        let stale = Cache::new(Duration::ZERO);
        assert_eq!(*stale.get(&1, async { Ok("a") }).await.unwrap().0, "a");
        let (value, error) = stale.get(&1, async { Err(fault("RequestLimitExceeded")) }).await.unwrap();
        assert_eq!((*value, error.unwrap().code.as_str()), ("a", "RequestLimitExceeded"));
        let gone = stale.get(&1, async { Err(fault("InvalidSubnetID.NotFound")) }).await.unwrap_err();
        assert_eq!(gone.code, "InvalidSubnetID.NotFound", "an answer counts, even if it is no");
        assert_eq!(*stale.get(&1, async { Ok("b") }).await.unwrap().0, "b");
    }
}
