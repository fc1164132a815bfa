//! Every target over its kept corpus and a fixed number of inputs bred from it: the same ones in every run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use croft_fuzz::{read, run, targets};

const INPUTS: u64 = 3_000;

fn try_target(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (_, target) = targets::ALL.iter().find(|(found, _)| *found == name).expect("a target");
    let mut seeds = read(&root.join("corpus").join(name)).expect("a kept corpus");
    assert!(!seeds.is_empty(), "the kept corpus is empty");
    if targets::reads_reviews(name) {
        seeds.extend(read(&root.join("../tests/corpus/reviews")).expect("captured reviews"));
    }
    let report = run(*target, &seeds, 7, |tried| tried < INPUTS);
    if let Some(finding) = report.finding {
        panic!("{}\n{}", finding.what, String::from_utf8_lossy(&finding.input));
    }
    assert_eq!(report.tried, INPUTS);
    assert!(!report.kept.is_empty(), "breeding found nothing new: it doesn't reach the target");
}

#[test]
fn reviews() {
    try_target("review");
}

#[test]
fn patches() {
    try_target("patch");
}

#[test]
fn selectors() {
    try_target("selector");
}

#[test]
fn clusters() {
    try_target("solve");
}

#[test]
fn quantities() {
    try_target("quantity");
}

#[test]
fn a_target_that_contradicts_itself_is_found() {
    let report = run(
        |input| if input.contains(&b'{') { Err("a brace".to_owned()) } else { Ok(String::new()) },
        &[b"x".to_vec()],
        1,
        |tried| tried < INPUTS,
    );
    assert_eq!(report.finding.expect("a finding").what, "a brace");
}
