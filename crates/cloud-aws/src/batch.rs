//! Merges calls of many claims into one.
//!
//! EC2 limits the number of calls, not their size, and a burst of a thousand claims would use up the limit with one
//! call each. So the first caller waits briefly for others; then one call is made for all, and each takes its part of
//! the answer.
//!
//! The first caller may be dropped at any await, as everything that the controller runs; the others then start again.
//! So only idempotent calls are merged.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

/// Time that the first caller waits for others: short compared with a launch, enough for callers that woke together.
const WINDOW: Duration = Duration::from_millis(20);

/// Callers of the same kind of call at the same time.
#[derive(Debug)]
pub(crate) struct Batch<T, R> {
    most: usize,
    open: Mutex<Option<Arc<Group<T, R>>>>,
}

#[derive(Debug)]
struct Group<T, R> {
    members: Mutex<Vec<(T, oneshot::Sender<R>)>>,
    full: Notify,
}

impl<T: Clone, R: Clone> Batch<T, R> {
    /// Batches of at most `most` items.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Mutex::new(None) }
    }

    /// The answer of the one `call` that is made for `item` and all items merged with it.
    pub(crate) async fn join<F, A>(&self, item: T, call: F) -> R
    where
        F: Fn(Vec<T>) -> A,
        A: Future<Output = R>,
    {
        loop {
            let (group, receiver, first) = self.enter(item.clone());
            if !first {
                match receiver.await {
                    Ok(answer) => return answer,
                    Err(_) => continue,
                }
            }
            let lead = Lead { batch: self, group };
            tokio::select! {
                () = tokio::time::sleep(WINDOW) => {}
                () = lead.group.full.notified() => {}
            }
            let (items, senders): (Vec<T>, Vec<_>) = lead.close().into_iter().unzip();
            let answer = call(items).await;
            for sender in senders {
                // A dropped caller no longer waits, the first one included.
                let _ = sender.send(answer.clone());
            }
            return answer;
        }
    }

    fn enter(&self, item: T) -> (Arc<Group<T, R>>, oneshot::Receiver<R>, bool) {
        let (sender, receiver) = oneshot::channel();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let first = open.is_none();
        let group =
            Arc::clone(open.get_or_insert_with(|| {
                Arc::new(Group { members: Mutex::new(Vec::new()), full: Notify::new() })
            }));
        let mut members = group.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.push((item, sender));
        if members.len() >= self.most {
            *open = None;
            group.full.notify_one();
        }
        drop(members);
        (group, receiver, first)
    }
}

/// Keeps a group open until it is dropped.
struct Lead<'a, T, R> {
    batch: &'a Batch<T, R>,
    group: Arc<Group<T, R>>,
}

impl<T, R> Lead<'_, T, R> {
    /// Closed: no caller joins, and waiting callers are answered.
    fn close(&self) -> Vec<(T, oneshot::Sender<R>)> {
        let mut open = self.batch.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|group| Arc::ptr_eq(group, &self.group)) {
            *open = None;
        }
        std::mem::take(&mut *self.group.members.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T, R> Drop for Lead<'_, T, R> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_call() {
        let batch: Batch<u32, Vec<u32>> = Batch::new(100);
        let calls = AtomicU32::new(0);
        let ask = |items: Vec<u32>| async {
            calls.fetch_add(1, Relaxed);
            items
        };
        let answers = futures::future::join_all((0..50).map(|n| batch.join(n, ask))).await;
        assert_eq!(calls.load(Relaxed), 1);
        assert!(answers.iter().all(|a| *a == (0..50).collect::<Vec<_>>()));
        batch.join(7, ask).await;
        assert_eq!(calls.load(Relaxed), 2, "later is another call");
    }

    #[tokio::test]
    async fn full_batch_is_sent_at_once_and_a_new_one_begins() {
        let batch: Batch<u32, usize> = Batch::new(20);
        let ask = |items: Vec<u32>| async move { items.len() };
        let sizes = futures::future::join_all((0..50).map(|n| batch.join(n, ask))).await;
        assert_eq!((sizes[0], sizes[20], sizes[49]), (20, 20, 10));
    }

    #[tokio::test]
    async fn waiters_of_a_dropped_caller_start_again() {
        let batch: Arc<Batch<u32, Vec<u32>>> = Arc::new(Batch::new(100));
        let during_the_call = Arc::clone(&batch);
        let first = tokio::spawn(async move {
            during_the_call.join(1, |_| std::future::pending::<Vec<u32>>()).await;
        });
        tokio::task::yield_now().await;
        let other = Arc::clone(&batch);
        let second = tokio::spawn(async move { other.join(2, |items| async { items }).await });
        tokio::time::sleep(WINDOW * 3).await;
        first.abort();
        assert_eq!(second.await.unwrap(), [2], "the first was dropped within its call");

        let waiting = batch.join(3, |items| async { items });
        assert!(waiting.now_or_never().is_none());
        assert_eq!(batch.join(4, |items| async { items }).await, [4], "dropped within the window");
    }
}
