//! Plans of random clusters, bound by a model of kube-scheduler. `make oracle` asks kube-scheduler itself, with more fields; these
//! take seconds.

mod model;
mod queue;
mod scene;

use std::collections::BTreeMap;

use croft_scheduler::Plan;
use croft_simkit::Random;
use model::{Node, allows};
use scene::{Scene, Template};

use crate::build::{self, ZONES};

/// Planned pods with their names and those of their nodes.
type Homes<'a> = Vec<(&'a Template, &'a str, &'a str)>;

fn homes<'a>(scene: &'a Scene, plan: &'a Plan) -> Homes<'a> {
    let old = plan.existing.iter().map(|place| (&place.pods, &place.node));
    let new = plan.instances.iter().map(|instance| (&instance.pods, &instance.name));
    let all = old.chain(new).flat_map(|(pods, node)| pods.iter().map(move |pod| (pod, node)));
    all.map(|(pod, node)| (scene.template(&pod.name), &*pod.name, node.as_str())).collect()
}

fn new_nodes(plan: &Plan) -> impl Iterator<Item = Node> {
    plan.instances.iter().map(|instance| Node {
        name: instance.name.clone(),
        zone: ZONES.into_iter().find(|zone| *zone == instance.zone),
        tainted: false,
        cpu: instance.allocatable.get("cpu"),
        pods: BTreeMap::new(),
    })
}

/// Binds pods to their planned nodes in a random order, as long as one may be bound; returns the others.
fn bind<'a>(nodes: &mut [Node], mut left: Homes<'a>, random: &mut Random) -> Homes<'a> {
    loop {
        let at = |name: &str| nodes.iter().position(|node| node.name == name).unwrap();
        let open: Vec<usize> =
            (0..left.len()).filter(|pod| allows(nodes, left[*pod].0, at(left[*pod].2))).collect();
        let Some(next) = random.pick(&open) else { return left };
        let (template, name, home) = left.remove(*next);
        let at = at(home);
        nodes[at].pods.insert(name.to_owned(), template.clone());
    }
}

/// The nodes with the pods of a plan, if all can be bound in this order: those on existing nodes come first, then those on coming
/// nodes, then the others.
fn replay(scene: &Scene, plan: &Plan, random: &mut Random) -> Option<Vec<Node>> {
    let mut nodes = scene.nodes.clone();
    let mut left = homes(scene, plan);
    for come in [Vec::new(), scene.coming.clone(), new_nodes(plan).collect()] {
        nodes.extend(come);
        let is_there = |home: &str| nodes.iter().any(|node| node.name == home);
        let (now, later) = left.into_iter().partition(|(.., home)| is_there(home));
        left = later;
        left.append(&mut bind(&mut nodes, now, random));
    }
    left.is_empty().then_some(nodes)
}

/// The nodes with the pods of a plan, if some order binds all.
fn bound(scene: &Scene, plan: &Plan, seed: u64) -> Option<Vec<Node>> {
    let random = &mut Random::new(seed);
    (0..200).find_map(|_| replay(scene, plan, random))
}

/// Seeds whose plans could not be bound before: a domain that a pod of a lower priority opens counts for spreads, and affinity
/// between two groups needs a first pod.
const KEPT: [u64; 6] = [4_915, 15_875, 18_656, 18_800, 19_646, 28_616];

/// Scenes of a run; `CROFT_SCENES` takes another number, for which the figures below aren't asserted.
const SCENES: u64 = 3_000;

fn scenes() -> u64 {
    std::env::var("CROFT_SCENES").map_or(SCENES, |number| number.parse().unwrap())
}

#[test]
fn planned_pods_can_be_bound_in_some_order() {
    let kept = KEPT.into_iter().filter(|seed| *seed >= scenes());
    for seed in (0..scenes()).chain(kept) {
        let scene = Scene::new(seed);
        let plan = build::plan(&scene.cluster());
        let bound = bound(&scene, &plan, seed);
        assert!(bound.is_some(), "seed {seed}: {:?}; planned {:?}", scene, homes(&scene, &plan));
    }
}

/// A pod too many left out, or a dearer plan, isn't wrong in one cluster, but shows in many: a change may lower these
/// figures, and a higher one needs a reason.
#[test]
fn plans_leave_out_no_more_pods_and_cost_no_more() {
    let (mut left, mut left_with_room, mut micros) = (0, 0, 0);
    for seed in 0..scenes() {
        let scene = Scene::new(seed);
        let plan = build::plan(&scene.cluster());
        micros += plan.cost.micros();
        left += plan.unschedulable.len();
        if let Some(nodes) = bound(&scene, &plan, seed) {
            let templates = plan.unschedulable.iter().map(|one| scene.template(&one.pod.name));
            left_with_room +=
                templates.filter(|template| (0..nodes.len()).any(|at| allows(&nodes, template, at))).count();
        }
    }
    println!("left={left} left_with_room={left_with_room} micros={micros}");
    if scenes() == SCENES {
        assert!(left <= 4_450, "{left} pods are left out");
        assert!(left_with_room <= 31, "{left_with_room} pods are left out that some node takes in the end");
        assert!(micros <= 594_050_000, "all cost {micros} millionths of a dollar an hour");
    }
}

#[test]
fn nominated_pods_keep_their_places() {
    let (mut planned, mut pending) = (0, 0);
    for seed in 0..scenes() {
        let scene = Scene::new(seed);
        let plan = build::plan(&scene.cluster());
        planned += homes(&scene, &plan).len();
        pending += queue::pending_after(&scene, &plan, &mut Random::new(seed)).len();
    }
    println!("planned={planned} pending={pending}");
    if scenes() == SCENES {
        assert!(pending <= 4, "{pending} of {planned} planned pods stay pending");
    }
}
