//! A search to its end, and its result in lines.

use std::sync::Mutex;

use stateright::{Checker, Model, Path};

use crate::{
    events::Event,
    model::{Scope, Search, State},
    property::{BINDS, INSIDE, OUTSIDE},
};

/// The result of a search.
#[derive(Debug)]
pub struct Report {
    /// The name of the scope.
    pub name: String,
    /// The number of states.
    pub states: usize,
    /// The longest sequence of events.
    pub depth: usize,
    /// The numbers of results that were computed.
    pub sizes: String,
    /// The shortest sequence for each property that doesn't hold, in lines.
    pub counterexamples: Vec<String>,
    /// True if some pod was bound where it may run.
    pub binds: bool,
}

impl Report {
    /// Searches `scope`, with one thread: with more, what is found first need not be shortest.
    #[must_use]
    pub fn search(scope: Scope) -> Self {
        let name = scope.name.clone();
        let checker = Search::new(scope).checker().threads(1).spawn_bfs().join();
        let model = checker.model();
        let found = [INSIDE, OUTSIDE].into_iter().filter_map(|property| {
            let path = checker.discovery(property)?;
            Some(format!("{name}: not so: {property}\n{}", lines(model, path)))
        });
        let counterexamples = found.collect();
        Self {
            name,
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            sizes: model.sizes(),
            counterexamples,
            binds: checker.discovery(BINDS).is_some(),
        }
    }

    /// Searches all of `scopes`. Calls `show` with each result.
    pub fn search_all(scopes: Vec<Scope>, show: impl Fn(&Self) + Sync) -> Vec<Self> {
        each(scopes, |scope| {
            let report = Self::search(scope);
            show(&report);
            report
        })
    }

    /// The result in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { name, states, depth, sizes, counterexamples, binds } = self;
        let binds = if *binds { "" } else { ", no pod is ever bound" };
        format!(
            "{name}: {states} states, at most {} events, {} counterexamples{binds} ({sizes})",
            depth.saturating_sub(1),
            counterexamples.len()
        )
    }
}

/// Calls `search` with each of `scopes`, with as many at the same time as there are cores.
pub fn each<R: Send>(scopes: Vec<Scope>, search: impl Fn(Scope) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (waiting, done) = (Mutex::new(scopes), Mutex::new(Vec::new()));
    std::thread::scope(|workers| {
        for _ in 0..cores {
            workers.spawn(|| {
                loop {
                    let Some(scope) = waiting.lock().expect("no search panicked").pop() else { break };
                    let result = search(scope);
                    done.lock().expect("no search panicked").push(result);
                }
            });
        }
    });
    done.into_inner().expect("no search panicked")
}

fn lines(model: &Search, path: Path<State, Event>) -> String {
    let steps = path.into_vec();
    let mut text = String::new();
    if let Some((first, _)) = steps.first() {
        text.push_str(&format!("  in force: {:?}\n", model.declared(first)));
    }
    for (at, pair) in steps.windows(2).enumerate() {
        let [(before, Some(event)), (after, _)] = pair else { continue };
        text.push_str(&format!("  {}. {}\n", at + 1, model.describe(before, *event, after)));
    }
    text
}
