//! What was looked up, kept for a while, and longer while AWS can't be asked.

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
    entries: Mutex<BTreeMap<K, Entry<V>>>,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    at: Instant,
}

/// Answers that nobody asked for this long are forgotten.
const FORGET: Duration = Duration::from_secs(24 * 3600);

impl<K: Ord + Clone, V> Cache<K, V> {
    pub(crate) fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, entries: Mutex::new(BTreeMap::new()) }
    }

    /// The answer to `key`: the kept one while it is fresh, else what `ask` gives, else (when AWS can't be
    /// asked) the kept one with what went wrong.
    pub(crate) async fn get<F>(&self, key: &K, ask: F) -> Result<(Arc<V>, Option<Fault>), Fault>
    where
        F: Future<Output = Result<V, Fault>>,
    {
        let kept = {
            let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.get(key).map(|entry| (Arc::clone(&entry.value), entry.at))
        };
        if let Some((value, at)) = &kept {
            if at.elapsed() < self.fresh_for {
                return Ok((Arc::clone(value), None));
            }
        }
        match ask.await {
            Ok(value) => {
                let value = Arc::new(value);
                let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
                entries.retain(|_, entry| entry.at.elapsed() < FORGET);
                entries.insert(key.clone(), Entry { value: Arc::clone(&value), at: Instant::now() });
                Ok((value, None))
            }
            // A definite "it isn't there" replaces what was known; a lack of an answer doesn't.
            Err(fault) => match kept {
                Some((value, _)) if !is_an_answer(&fault) => Ok((value, Some(fault))),
                _ => Err(fault),
            },
        }
    }

    /// Asks anew if the kept answer will be old within `ahead`, or there is none. Nobody waits for this one.
    pub(crate) async fn refresh<F>(&self, key: &K, ahead: Duration, ask: F) -> Result<(), Fault>
    where
        F: Future<Output = Result<V, Fault>>,
    {
        let good = {
            let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.get(key).is_some_and(|entry| entry.at.elapsed() + ahead < self.fresh_for)
        };
        if !good {
            let entry = Entry { value: Arc::new(ask.await?), at: Instant::now() };
            self.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), entry);
        }
        Ok(())
    }

    /// Forgets everything, so that the next question is asked.
    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
    async fn keeps_what_was_known_while_aws_is_away() {
        let fresh = Cache::new(Duration::from_secs(3600));
        assert_eq!(*fresh.get(&1, async { Ok("a") }).await.unwrap().0, "a");
        assert_eq!(*fresh.get(&1, async { Ok("b") }).await.unwrap().0, "a", "kept while fresh");

        let stale = Cache::new(Duration::ZERO);
        assert_eq!(*stale.get(&1, async { Ok("a") }).await.unwrap().0, "a");
        let (value, trouble) = stale.get(&1, async { Err(fault("RequestLimitExceeded")) }).await.unwrap();
        assert_eq!((*value, trouble.unwrap().code.as_str()), ("a", "RequestLimitExceeded"));
        let gone = stale.get(&1, async { Err(fault("InvalidSubnetID.NotFound")) }).await.unwrap_err();
        assert_eq!(gone.code, "InvalidSubnetID.NotFound", "an answer counts, even if it is no");
        assert_eq!(*stale.get(&1, async { Ok("b") }).await.unwrap().0, "b");
    }
}
