//! Panics of any task are violations, also of those that are caught: the engine goes on after one.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Mutex, Once},
    thread::{self, ThreadId},
};

struct Seen {
    thread: ThreadId,
    /// A thread of a pool, where searches run.
    is_unnamed: bool,
    text: String,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Notes panics from now on.
fn watch() {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = thread::current();
            let (id, is_unnamed) = (thread.id(), thread.name().is_none());
            SEEN.lock().unwrap().push(Seen { thread: id, is_unnamed, text: info.to_string() });
            before(info);
        }));
    });
}

/// Plays on a clock of its own. Returns the result, none if the play itself panicked, and the panics of its tasks.
pub fn play<T>(play: impl Future<Output = T>) -> (Option<T>, Vec<String>) {
    watch();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let played = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(play))).ok();
    (played, take())
}

/// Plays on a clock of its own, and fails if a task or a thread of a pool panics.
pub fn play_or_fail(play: impl Future<Output = ()>) {
    let (played, mut panicked) = self::play(play);
    panicked.extend(take_of_pools());
    assert_eq!(panicked, Vec::<String>::new());
    assert!(played.is_some(), "the play panicked");
}

/// The panics of this thread since the last call.
fn take() -> Vec<String> {
    let own = thread::current().id();
    take_if(|seen| seen.thread == own)
}

/// The panics of threads of a pool, whose run isn't known.
pub fn take_of_pools() -> Vec<String> {
    take_if(|seen| seen.is_unnamed)
}

fn take_if(wanted: impl Fn(&Seen) -> bool) -> Vec<String> {
    let taken = SEEN.lock().unwrap().extract_if(.., |seen| wanted(seen)).collect::<Vec<_>>();
    taken.into_iter().map(|seen| format!("panicked: {}", seen.text)).collect()
}
