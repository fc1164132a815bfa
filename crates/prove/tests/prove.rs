//! The search finds no way in: the small scopes with every `make test`, the large ones with `make prove`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use croft_prove::{model::Scope, pods::Alphabet, report::Report, scopes};

/// Searches `scopes`, prints what was found, and fails if that is a way in.
fn search_all(scopes: Vec<Scope>, threads: usize) {
    let mut found = Vec::new();
    let mut states = 0;
    for scope in scopes {
        let report = Report::search(scope, threads);
        println!("{}", report.line());
        assert!(report.binds, "{}: no pod is ever bound, so the search says nothing", report.name);
        states += report.states;
        found.extend(report.counterexamples);
    }
    for counterexample in &found {
        println!("{counterexample}");
    }
    println!("{states} states, {} counterexamples", found.len());
    assert!(found.is_empty(), "{} counterexamples", found.len());
}

#[test]
fn small_alphabet_finds_no_way_into_a_settled_cluster() {
    search_all(scopes::settled(&Alphabet::small(), 1), 1);
}

#[test]
fn small_alphabet_finds_no_way_in_while_one_object_is_edited() {
    search_all(scopes::edited(&Alphabet::small(), 1, 0), 1);
}

#[test]
#[ignore = "minutes: `make prove`"]
fn full_alphabet_finds_no_way_into_a_settled_cluster() {
    search_all(scopes::settled(&Alphabet::full(), 2), 2);
}

#[test]
#[ignore = "minutes: `make prove`"]
fn small_alphabet_finds_no_way_in_while_two_objects_are_edited() {
    search_all(scopes::edited(&Alphabet::small(), 2, 1), 2);
}
