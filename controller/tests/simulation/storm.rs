//! Instances that never boot, again and again: what is launched for them is bounded, and forgotten once they do.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_cloud::tags;
use croft_controller::config::settings::Settings;
use croft_ec2_sim::control::Control;
use tokio::time::sleep;

use crate::{
    panics,
    run::{REGISTRATION_TIMEOUT, Run},
    runs::rest,
};

const HOUR: Duration = Duration::from_secs(3_600);
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Instances by pool, as they were seen so far: the cloud forgets those that are long terminated.
type Launched = BTreeMap<String, BTreeSet<String>>;

fn see(run: &Run, launched: &mut Launched) {
    for (id, instance) in run.environment.world.lock().unwrap().instances() {
        let pool = instance.tags.get(tags::POOL).cloned().unwrap_or_default();
        launched.entry(pool).or_default().insert(id.clone());
    }
}

fn counts(launched: &Launched) -> BTreeMap<String, usize> {
    launched.iter().map(|(pool, ids)| (pool.clone(), ids.len())).collect()
}

/// A pod of each workload goes, and its controller makes another.
fn recreate(run: &Run) {
    let now = run.environment.clock.true_wall();
    let mut store = run.environment.store.lock().unwrap();
    for workload in &run.model.lock().unwrap().workloads {
        let of_namespace = |id: &&croft_simkit::Id| id.1 == workload.namespace;
        let first = store.of_kind("Pod").map(|(id, _)| id).find(of_namespace).cloned();
        if let Some(id) = first {
            store.delete(&id, None, now);
        }
    }
}

async fn play(seed: u64) {
    let mut run = Run::new(seed);
    let boots = |run: &Run, works| {
        run.environment.world.lock().unwrap().control(Control::Boots { works }).unwrap();
    };
    boots(&run, false);
    let (models, checks) = (run.start_models(), run.start_checks());
    run.start();
    // Launches before the first registration timeout are a scale-up like any other.
    sleep(REGISTRATION_TIMEOUT - LOOK_EVERY).await;
    let mut launched = Launched::new();
    see(&run, &mut launched);
    let burst = counts(&launched);
    assert!(!burst.is_empty(), "seed {seed}: nothing is launched");
    for look in 0..(HOUR.as_secs() / LOOK_EVERY.as_secs()) {
        sleep(LOOK_EVERY).await;
        recreate(&run);
        see(&run, &mut launched);
        if look % 60 == 30 {
            // The count must survive the process.
            run.processes.clear();
            run.start();
        }
        assert_eq!(run.check(), Vec::<String>::new(), "seed {seed}");
    }
    let most = usize::try_from(Settings::default().unregistered_launches_per_hour).unwrap();
    let all = counts(&launched);
    println!("storm: seed={seed} burst={burst:?} after an hour={all:?}");
    for (pool, count) in &all {
        let more = count - burst.get(pool).copied().unwrap_or(0);
        assert!(more <= most, "seed {seed}: {more} launches of {pool} in an hour without a node: {all:?}");
    }
    boots(&run, true);
    // A pool that has had its rounds of the hour launches in the next one.
    sleep(HOUR).await;
    assert_eq!(rest(&mut run).await, Vec::<String>::new(), "seed {seed}");
    let store = run.environment.store.lock().unwrap();
    for (id, pool) in store.of_kind("TenantPool") {
        assert!(
            pool["status"]["launchBackoff"]["templates"].as_array().is_none_or(Vec::is_empty),
            "seed {seed}: {id:?} {pool}"
        );
    }
    drop(store);
    models.abort();
    checks.abort();
}

#[test]
fn launches_without_a_node_are_bounded_and_pods_run_once_instances_boot() {
    for seed in 1..=6 {
        panics::play_or_fail(play(seed));
    }
}
