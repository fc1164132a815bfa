//! Panics of any task are violations, also of those that are caught: the engine goes on after one.

use std::{
    panic,
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
pub fn watch() {
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

/// The panics of this thread since the last call.
pub fn take() -> Vec<String> {
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
