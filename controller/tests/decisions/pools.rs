//! The status of a pool.

use croft_controller::{
    action::{Action, Key},
    kube_api::Verb,
};
use serde_json::json;

use crate::bench::{Bench, at, claim, condition, launched, pod, pool};

#[test]
fn what_is_said_of_a_pool_gives_way_to_the_plan_for_pods_that_have_just_come() {
    let mut bench = Bench::new();
    bench.decide(30);
    bench.see(58, claim(10, launched(&[]), false));
    bench.see(58, pod("a", None));
    let writes = |actions: &[Action]| {
        actions.iter().filter(|action| action.keys() == [Key::Pool("pool-a".to_owned())]).count()
    };
    let actions = bench.engine.step(at(60)).actions;
    assert_eq!(writes(&actions), 0, "names for the plan's claims are reserved on the same object");
}

#[test]
fn what_others_say_of_a_pool_is_left_as_it_is() {
    let mut bench = Bench::new();
    let mut said = pool(7, &json!({}));
    let conditions = json!({"conditions": [condition("Accepted", 0), condition("CollectionStopped", 0)]});
    said.status = serde_json::from_value(conditions).unwrap();
    bench.see(30, said);
    let writes: Vec<_> = bench
        .engine
        .step(at(60))
        .actions
        .into_iter()
        .filter_map(|action| match action {
            Action::Write { call, .. } => Some(call.verb),
            _ => None,
        })
        .collect();
    let [Verb::PatchStatus(patch)] = &writes[..] else { panic!("{writes:?}") };
    let kinds: Vec<_> = patch["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"Accepted") && kinds.contains(&"Ready"), "{kinds:?}");
    assert!(!kinds.contains(&"CollectionStopped"), "what the engine itself says no more isn't so: {kinds:?}");
    assert_eq!(patch["metadata"]["resourceVersion"], "7", "a list of conditions is written as a whole");
}
