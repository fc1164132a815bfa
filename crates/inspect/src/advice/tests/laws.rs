//! Laws of random clusters.

use std::collections::{BTreeMap, BTreeSet};

use croft_manifest::Input;
use croft_scheduler::{Options, Quantity};
use croft_simkit::Random;

use super::world::{Extra, NOW, World, types};
use crate::advice::{
    Focus,
    find::find,
    parts::Parts,
    settle::{Search, Settled},
    take_out::take_out,
};

const SEEDS: u64 = 24;

const ANNOTATIONS: [&str; 4] = ["", "", "", "croft.dev/do-not-disrupt: 'true'"];
const RULES: [&str; 3] = ["minAvailable: 100%", "maxUnavailable: 0", "maxUnavailable: 1"];
const POOLS: [&str; 5] = [
    "disruption: {preference: Cheapest, minSavings: '0'},",
    "disruption: {preference: Cheapest, minSavings: '0.15'},",
    "disruption: {preference: Cheapest, minSavings: '0', evictionCost: '2'},",
    "disruption: {preference: Cheapest, minSavings: '0', consolidationPolicy: WhenEmpty},",
    "disruption: {preference: Cheapest, minSavings: '0'}, limits: {nodes: 6},",
];

/// The rules of an app's pods in YAML.
fn rules(random: &mut Random, app: &str) -> String {
    let selector = format!("labelSelector: {{matchLabels: {{app: {app}}}}}");
    match random.index(6) {
        0 => format!(
            "topologySpreadConstraints: [{{maxSkew: 1, whenUnsatisfiable: DoNotSchedule, topologyKey: topology.kubernetes.io/zone, {selector}}}]"
        ),
        1 => format!(
            "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: kubernetes.io/hostname, {selector}}}]}}}}"
        ),
        2 => "nodeSelector: {node-pool: main, kubernetes.io/arch: amd64}".to_owned(),
        _ => String::new(),
    }
}

/// A cluster in which every pod has a node, each app's pods on nodes of their own.
fn cluster(random: &mut Random) -> World {
    let mut world = World::new(random.one_of(&POOLS), "");
    let mut nodes = 0;
    for app in ["a", "b", "c"] {
        let spec = rules(random, app);
        let (annotations, cpu) = (random.one_of(&ANNOTATIONS), random.one_of(&["300m", "900m", "1500m"]));
        for number in 0..=random.index(2) {
            nodes += 1;
            let name = format!("n{nodes}");
            // Both zones in turn, as a spread would have it.
            let zone = if number % 2 == 0 { "z1" } else { "z2" };
            let kind = random.one_of(&["small", "large"]);
            let extra = Extra { cpu, annotations, spec: &spec };
            world =
                world.node(&name, kind, zone, random.one_of(&ANNOTATIONS)).pod(app, number, &name, &extra);
        }
        if random.index(3) == 0 {
            world = world.budget(app, random.one_of(&RULES));
        }
    }
    world
}

/// The pods by node, and none that has no node, no room there, or a node that is gone.
fn assert_placed(input: &Input, pods: &BTreeSet<String>, seed: u64) {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    let mut placed = BTreeSet::new();
    let milli = |text: &str| text.parse::<Quantity>().unwrap().millis();
    for pod in &input.pods {
        let spec = pod.spec.as_ref().unwrap();
        let node = spec.node_name.as_deref().unwrap_or_default();
        assert!(input.nodes.get("", node).is_some(), "seed {seed}: {:?} is on {node:?}", pod.metadata.name);
        let requests = spec.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap();
        *used.entry(node).or_default() += milli(&requests["cpu"].0);
        placed.insert(pod.metadata.name.clone().unwrap());
    }
    for (node, used) in used {
        let status = input.nodes.get("", node).unwrap().status.clone().unwrap();
        let room = milli(&status.allocatable.unwrap()["cpu"].0);
        assert!(used <= room, "seed {seed}: {node} has room for {room}, and pods of {used}");
    }
    assert_eq!(placed, *pods, "seed {seed}");
}

fn settle(search: &Search, input: Input, parts: &Parts) -> Settled {
    search.settle(input, &parts.pools(Some("main"))).unwrap()
}

/// Every pod keeps a node with room in each counterfactual, which is no dearer than the end; a cluster without any
/// constraint has no advice, and the whole is the same when it is done again.
#[test]
fn counterfactuals_place_every_pod_and_are_no_dearer() {
    let mut dearest = 0;
    for seed in 0..SEEDS {
        let world = cluster(&mut Random::new(seed));
        let input = world.input();
        let pods: BTreeSet<String> = input.pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        let search = Search { types: types(), options: Options::default(), now: NOW.parse().unwrap() };
        let parts = Parts::new(&input);
        let end = settle(&search, input.clone(), &parts);
        assert_placed(&end.input, &pods, seed);
        let found = find(&input, &input, &types(), search.now, &Focus::All).unwrap();
        let mut free = end.input.clone();
        for one in &found {
            let mut without = end.input.clone();
            take_out(&one.constraint, &input, &mut without);
            take_out(&one.constraint, &input, &mut free);
            let without = settle(&search, without, &parts);
            assert_placed(&without.input, &pods, seed);
            assert!(without.cost <= end.cost, "seed {seed}: without {:?}", one.constraint);
            dearest = dearest.max(end.saving(&without).micros());
        }
        let free = settle(&search, free, &parts);
        assert_placed(&free.input, &pods, seed);
        let found = find(&free.input, &input, &types(), search.now, &Focus::All).unwrap();
        assert!(found.is_empty(), "seed {seed}: {found:?}");
        let (once, again) = (world.advice(), world.advice());
        assert_eq!(once.prices, again.prices, "seed {seed}");
        assert!(once.prices.iter().all(|price| price.saving <= once.together), "seed {seed}");
    }
    assert!(dearest > 0, "no cluster had a constraint with a price");
}
