//! Runs from seeds.

use std::{sync::Arc, time::Duration};

use croft_ec2_sim::{control::Control, sqs::News};
use croft_scheduler::CapacityType;
use croft_simkit::Faults;
use tokio::time::sleep;

use crate::{aws, log, panics, run::Run};

/// Longer than a node takes to be replaced by another.
const SETTLE_WINDOW: Duration = Duration::from_secs(60);
/// Consolidation may take a while to find the cheapest cluster; it stops then.
const SETTLE_WINDOWS: usize = 60;
/// An hour of quarter minutes: enough for the longest rest after a failure, for whatever is lost to be found, and for a
/// pool whose nodes are replaced one after the other, each of them with a volume that is waited for.
const REST_ROUNDS: usize = 240;
/// Six minutes, in which Croft finds what it can find by itself: an operator waits for that before anything else, as
/// docs/tasks/restore-a-backup.md says.
const ROUNDS_WITHOUT_OPERATOR: usize = 24;

/// Lets everything come to rest; what is broken then, if anything is.
pub async fn rest(run: &mut Run) -> Vec<String> {
    run.environment.set_faults(Faults::default());
    {
        let mut world = run.environment.world.lock().unwrap();
        world.control(Control::Capacity { rules: Vec::new() }).unwrap();
        world.control(Control::Boots { works: true }).unwrap();
        world.control(Control::LaunchFailures { rules: Vec::new() }).unwrap();
    }
    if run.processes.is_empty() {
        run.start();
    }
    for round in 0..REST_ROUNDS {
        sleep(Duration::from_secs(15)).await;
        let broken = run.check();
        if !broken.is_empty() {
            return broken;
        }
        if !run.is_disturbed() {
            run.apply();
        }
        if !run.is_disturbed() && run.check_at_rest().is_empty() {
            break;
        }
        if round >= ROUNDS_WITHOUT_OPERATOR {
            run.help_out();
            run.restore_tags();
        }
    }
    if run.is_disturbed() {
        return vec!["a user's sequence of changes doesn't come to its end".to_owned()];
    }
    let broken = run.check_at_rest();
    if broken.is_empty() { settle(run).await } else { broken }
}

/// While nothing changes, instances must stop changing: what is replaced by its like is replaced for ever. Between two
/// looks a search may have emptied a node, which is removed a while later; a node that stays empty is a violation.
async fn settle(run: &mut Run) -> Vec<String> {
    let mut before = run.instances();
    let mut broken = Vec::new();
    for _ in 0..SETTLE_WINDOWS {
        sleep(SETTLE_WINDOW).await;
        broken = run.check();
        if !broken.is_empty() {
            return broken;
        }
        let now = run.instances();
        let is_same = now == before;
        before = now;
        broken = run.check_at_rest();
        if is_same && broken.is_empty() {
            return broken;
        }
    }
    broken.push(format!("the cluster doesn't settle with nothing else changing: {before:?}"));
    broken
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Played {
    pub broken: Vec<String>,
    /// The last act of an operator, if one had to act.
    pub helped: Option<&'static str>,
    /// A check let pass what no controller could have prevented.
    pub is_excused: bool,
    /// Its processes had the provider for EC2.
    pub has_aws: bool,
    /// A pool had several templates.
    pub has_templates: bool,
}

async fn play(seed: u64) -> Played {
    let mut run = Run::new(seed);
    let broken = play_with(&mut run).await;
    if !broken.is_empty() {
        run.log_objects();
    }
    Played {
        broken,
        helped: run.helped,
        is_excused: run.is_excused(),
        has_aws: aws::was_used(&run),
        has_templates: run.templates.is_any(),
    }
}

/// Plays one run; what is broken, if anything is.
async fn play_with(run: &mut Run) -> Vec<String> {
    let models = run.start_models();
    let checks = run.start_checks();
    let image = run.dead_image.map(|(from, until)| {
        let world = Arc::clone(&run.environment.world);
        tokio::spawn(async move {
            sleep(from).await;
            world.lock().unwrap().control(Control::Boots { works: false }).unwrap();
            sleep(until - from).await;
            world.lock().unwrap().control(Control::Boots { works: true }).unwrap();
        })
    });
    run.start();
    let troubles = run.random.between(3, 12);
    for _ in 0..troubles {
        let quiet = run.random.between(100, 15_000);
        for _ in 0..quiet / 500 {
            sleep(Duration::from_millis(500)).await;
            let broken = run.check();
            if !broken.is_empty() {
                return broken;
            }
        }
        run.disturb().await;
    }
    if let Some(image) = image {
        image.abort();
    }
    let broken = rest(run).await;
    models.abort();
    checks.abort();
    broken
}

/// Plays the run of a seed.
fn play_alone(seed: u64) -> Played {
    let (played, panicked) = panics::play(play(seed));
    let mut played = played.unwrap_or_default();
    played.broken.extend(panicked);
    played
}

/// Seeds that a violation was found at, played again each time. 2000355: the answer to a claim's creation was lost, the next
/// try was refused, and another claim was made for the pods. 468: pods took a minute to end, the checks took the cluster
/// for settled meanwhile, and found the node empty that was about to be removed. 20000657 and 20000782: while its watch of
/// claims lagged, the controller didn't count the claims that it had deleted itself. 20002592: two users deleted and created
/// one Tenant at a time, and its pool waited for ever. 40000560: a pod was deleted, came back with a restored backup and was
/// deleted again; it counted as stuck by its first deletion, and its instance was terminated. 700113: a node was emptied onto
/// the coming node of a pod that must be apart from its pod, again and again. 60002414: an instance profile was made in another
/// account, and no launch got one for an hour. 60001178: a pod that shares a zone with its own kind was moved to another zone;
/// its replacement had to be near it while it ended, so a node was launched for it, again and again. 60002067: an instance that
/// had lost its claim and its tag got its pool's label instead of the pool's name as a tag, and was never adopted. 60003956: a
/// Tenant was deleted and created while its watch was interrupted; its next deletion was taken for the earlier one's.
/// 20784001155: volumes of pods that a silent kubelet kept were waited for from when the pods counted as stuck, instead of from
/// their end. 20786042745: a pool was gone before the instance that had lost its claim was adopted, and so for ever uncounted.
/// 20786093771: an empty node that the cloud recommended to leave stayed for as long as another one was on its way out.
/// 20786206082: volumes were waited for from when a stalled watch showed no pod, while pods still ran on the node.
/// 20786235105: an interrupted node without pods stayed, since the pods of another had no replacement. 20786252279: the answer to
/// a claim's deletion was lost while the watch was stalled, and a second node was removed beyond the budget.
const KEPT: [u64; 17] = [
    468,
    700_113,
    2_000_355,
    20_000_657,
    20_000_782,
    20_002_592,
    40_000_560,
    60_001_178,
    60_002_067,
    60_002_414,
    60_003_956,
    20_784_001_155,
    20_786_042_745,
    20_786_093_771,
    20_786_206_082,
    20_786_235_105,
    20_786_252_279,
];

/// How many seeds `make test` plays: two minutes of one processor without optimisation.
const RUNS: u64 = 200;

/// From this many runs on, the share of those that an operator helped or a check excused is bounded.
const SHARE_FROM: usize = 1_000;
/// One run of this many at most: more of them, and the checks see too little. An operator has to act where a restored backup
/// lacks so many claims that Croft asks for one (`CollectionStopped`), and where an instance lost its claim and the tag of its
/// cluster before a new process knew of it.
const HELPED_OR_EXCUSED_OF: usize = 1_000;

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("CROFT_SIM_SEED") {
        Some(seed) => vec![seed],
        None => {
            let from = number("CROFT_SIM_FROM").unwrap_or(1);
            KEPT.into_iter().chain(from..from + number("CROFT_SIM_RUNS").unwrap_or(RUNS)).collect()
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_paid_for_twice_whatever_fails() {
    log::start_if_asked();
    let seeds = seeds();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let played: Vec<(u64, Played)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|n| {
                let mine = seeds.iter().skip(n).step_by(threads);
                scope.spawn(move || {
                    let play = |seed: &u64| {
                        let played = play_alone(*seed);
                        if !played.broken.is_empty() {
                            println!("seed {seed}: {:#?}", played.broken);
                        }
                        (*seed, played)
                    };
                    mine.map(play).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let count = |is: fn(&Played) -> bool| played.iter().filter(|(_, played)| is(played)).count();
    let (helped, excused) = (count(|played| played.helped.is_some()), count(|played| played.is_excused));
    let (with_aws, with_templates) = (count(|played| played.has_aws), count(|played| played.has_templates));
    for (seed, played) in &played {
        if let Some(act) = played.helped {
            println!("seed {seed}: an operator {act} instances");
        }
        if played.is_excused {
            println!("seed {seed}: excused");
        }
    }
    let broken = played.iter().filter(|(_, played)| !played.broken.is_empty());
    let mut violations: Vec<u64> = broken.map(|(seed, _)| *seed).collect();
    violations.sort_unstable();
    println!(
        "soak: runs={} violations={} helped={helped} excused={excused} with_aws={with_aws} with_templates={with_templates} \
         seeds={violations:?}",
        seeds.len(),
        violations.len()
    );
    assert_eq!(panics::take_of_pools(), Vec::<String>::new());
    assert!(violations.is_empty(), "CROFT_SIM_SEED={} repeats the first", violations[0]);
    let most = seeds.len() / HELPED_OR_EXCUSED_OF;
    assert!(
        seeds.len() < SHARE_FROM || helped + excused <= most,
        "an operator helped {helped} of {} runs and a check excused {excused}; together {most} may be. The seeds are printed \
         above: find out why Croft doesn't come to rest by itself, or make the check exact",
        seeds.len()
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(seed);
            let _models = run.start_models();
            run.start();
            sleep(Duration::from_secs(60)).await;
            run.disturb().await;
            sleep(Duration::from_secs(60)).await;
            let store = run.environment.store.lock().unwrap();
            let log: Vec<String> = store.log.iter().map(|l| format!("{:?} {}", l.id, l.object)).collect();
            log
        })
    };
    // The second has a pool of several templates.
    for seed in [7, 19] {
        let (first, second) = (trace(seed), trace(seed));
        assert!(first.len() > 50, "nothing happened with seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn no_pod_is_on_a_spot_instance_when_it_is_interrupted() {
    panics::play_or_fail(async {
        let mut interrupted = 0;
        for seed in 0..8 {
            let mut run = Run::new(seed);
            for workload in &mut run.model.lock().unwrap().workloads {
                workload.max_unavailable = None;
            }
            let (models, checks) = (run.start_models(), run.start_checks());
            run.start();
            sleep(Duration::from_secs(60)).await;
            let world = Arc::clone(&run.environment.world);
            let instances: Vec<String> = {
                let world = world.lock().unwrap();
                let spot = world.instances().filter(|(_, i)| i.capacity_type == CapacityType::Spot);
                spot.filter(|(_, i)| i.state.is_alive()).map(|(id, _)| id.clone()).collect()
            };
            for id in &instances {
                interrupted += 1;
                assert!(world.lock().unwrap().interrupt(id, News::SpotWarning));
            }
            sleep(Duration::from_secs(130)).await;
            assert_eq!(run.environment.store.lock().unwrap().taken, 0, "seed {seed}");
            assert!(world.lock().unwrap().waiting_news() < 20, "news is acknowledged");
            assert_eq!(rest(&mut run).await, Vec::<String>::new(), "seed {seed}");
            models.abort();
            checks.abort();
        }
        assert!(interrupted >= 3, "only {interrupted} instances were interrupted");
    });
}
