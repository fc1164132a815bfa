//! Wrong evidence: kubelets that fall silent while their instances work, look-ups that find nothing, messages about an
//! earlier life of an instance. Nothing that works ends for it.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use croft_ec2_sim::sqs::News;
use croft_simkit::Spread;
use serde_json::json;
use tokio::time::sleep;

use crate::{panics, run::Run, runs::rest};

impl Run {
    /// Look-ups of what the class names find nothing for a while.
    pub fn find_nothing(&mut self) {
        let environment = std::sync::Arc::clone(&self.environment);
        let ms = self.random.between(1_000, 120_000);
        environment.finds_nothing.store(true, Ordering::Relaxed);
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            environment.finds_nothing.store(false, Ordering::Relaxed);
        });
    }

    /// Messages that say of working instances that they stop: from before they were started.
    pub fn publish_stale(&mut self) {
        for id in self.alive() {
            if self.random.permille(600) {
                self.publish_stopping(&id);
            }
        }
    }

    fn publish_stopping(&mut self, id: &str) {
        let mut world = self.environment.world.lock().unwrap();
        let Some(launched) = world.instance(id).map(|instance| instance.launched) else { return };
        let earlier = i64::try_from(launched).unwrap() - 60_000;
        let event = json!({
            "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
            "time": jiff::Timestamp::from_millisecond(earlier).unwrap().to_string(),
            "detail": {"instance-id": id, "state": "stopping"},
        });
        world.publish_text(&event.to_string());
    }

    fn alive(&self) -> Vec<String> {
        let world = self.environment.world.lock().unwrap();
        world.instances().filter(|(_, i)| i.state.is_alive()).map(|(id, _)| id.clone()).collect()
    }

    fn claims(&self) -> BTreeSet<String> {
        let store = self.environment.store.lock().unwrap();
        store.of_kind("NodeClaim").map(|(id, _)| id.2.clone()).collect()
    }

    /// True if the claim replaces others.
    fn replaces(&self, claim: &str) -> bool {
        let store = self.environment.store.lock().unwrap();
        let mut claims = store.of_kind("NodeClaim");
        claims.any(|(id, c)| id.2 == claim && c["metadata"]["annotations"]["croft.dev/replaces"].is_string())
    }

    fn condition(&self, pool: &str, kind: &str) -> Option<String> {
        let store = self.environment.store.lock().unwrap();
        let pool = store.of_kind("TenantPool").find(|(id, _)| id.2 == pool)?.1.clone();
        let conditions = pool["status"]["conditions"].as_array()?;
        conditions.iter().find(|c| c["type"] == json!(kind))?["message"].as_str().map(str::to_owned)
    }
}

/// Plays with runs of several seeds whose clusters are at rest.
fn each_seed(seeds: std::ops::Range<u64>, play: impl AsyncFn(&mut Run, u64)) {
    panics::play_or_fail(async {
        for seed in seeds {
            let mut run = Run::new(seed);
            for workload in &mut run.model.lock().unwrap().workloads {
                workload.max_unavailable = None;
                // A restarted controller consolidates again what it had given up: these clusters have nothing of it.
                (workload.spread, workload.end_ms) = (Spread::Anywhere, None);
                workload.volume_zones.clear();
                workload.replicas = workload.replicas.max(4);
            }
            run.environment.store.lock().unwrap().objects.retain(|id, _| id.0 != "DaemonSet");
            let (models, checks) = (run.start_models(), run.start_checks());
            run.start();
            assert_eq!(rest(&mut run).await, Vec::<String>::new(), "seed {seed}");
            play(&mut run, seed).await;
            assert_eq!(rest(&mut run).await, Vec::<String>::new(), "seed {seed}");
            models.abort();
            checks.abort();
        }
    });
}

#[test]
fn a_pool_whose_kubelets_fall_silent_one_after_another_is_not_used_up() {
    let stopped = std::cell::Cell::new(0);
    each_seed(0..6, async |run, seed| {
        let alive = run.alive();
        let before: BTreeSet<String> = alive.iter().cloned().collect();
        let now = run.environment.now_ms();
        // Each falls silent 20 seconds after the one before, and stays so for longer than repair waits.
        for (n, id) in alive.iter().enumerate() {
            let from = now + 20_000 * n as u64;
            run.model.lock().unwrap().silence(id, from, from + 400_000);
        }
        // Until the first is heard of again: one of each pool at most, as long as it is the only one there.
        let pools = 2 + usize::from(run.replicas > 0);
        for _ in 0..75 {
            sleep(Duration::from_secs(5)).await;
            let now: BTreeSet<String> = run.alive().into_iter().collect();
            let ended = before.difference(&now).count();
            assert!(ended <= pools, "seed {seed}: {ended} of {} instances ended", before.len());
        }
        let said = ["pool-a", "pool-b"].iter().any(|pool| run.condition(pool, "DisruptionStopped").is_some());
        stopped.set(stopped.get() + usize::from(said));
        sleep(Duration::from_secs(400)).await;
    });
    assert!(stopped.get() >= 3, "only {} runs say that nodes are held back", stopped.get());
}

#[test]
fn a_look_up_that_finds_nothing_and_messages_of_an_earlier_life_end_no_node() {
    each_seed(10..16, async |run, seed| {
        run.environment.finds_nothing.store(true, Ordering::Relaxed);
        // Also for a controller that has never found anything.
        drop(run.processes.pop());
        run.start();
        for id in run.alive() {
            run.publish_stopping(&id);
        }
        let before = run.claims();
        sleep(Duration::from_secs(120)).await;
        run.environment.finds_nothing.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(run.claims(), before, "seed {seed}");
    });
}

#[test]
fn recommendations_about_all_spot_instances_replace_few_at_a_time() {
    let replaced = std::cell::Cell::new(0);
    each_seed(20..28, async |run, seed| {
        let alive = run.alive();
        for id in &alive {
            run.environment.world.lock().unwrap().interrupt(id, News::Rebalance);
        }
        let total = run.claims().len();
        let most = (total / 10).max(3);
        for _ in 0..60 {
            sleep(Duration::from_secs(2)).await;
            let store = run.environment.store.lock().unwrap();
            let names: BTreeSet<String> = store.of_kind("NodeClaim").map(|(id, _)| id.2.clone()).collect();
            let mut going: BTreeSet<&str> = BTreeSet::new();
            for (_, claim) in store.of_kind("NodeClaim") {
                let annotations = &claim["metadata"]["annotations"];
                if annotations["croft.dev/disruption-reason"] == json!("Interrupted") {
                    let replaces = annotations["croft.dev/replaces"].as_str().unwrap_or_default();
                    going.extend(replaces.split(',').filter(|name| names.contains(*name)));
                }
            }
            replaced.set(replaced.get() + going.len());
            assert!(going.len() <= most, "seed {seed}: {} of {total} go at once", going.len());
        }
    });
    assert!(replaced.get() > 0, "nothing was replaced");
}

/// A pod that kube-scheduler doesn't come to for minutes isn't refused: its node waits for it.
#[test]
fn a_busy_scheduler_gets_no_second_node_for_a_pod() {
    let launched = std::cell::Cell::new(0);
    each_seed(30..40, async |run, seed| {
        let until = run.environment.now_ms() + 400_000;
        {
            let mut model = run.model.lock().unwrap();
            model.keep_scheduler_busy(until);
            for workload in &mut model.workloads {
                workload.replicas += 3;
            }
        }
        let before = run.claims();
        sleep(Duration::from_secs(60)).await;
        let planned = run.claims();
        launched.set(launched.get() + planned.difference(&before).count());
        // Until long after kube-scheduler has come to them.
        for _ in 0..90 {
            sleep(Duration::from_secs(5)).await;
            let now = run.claims();
            let more: Vec<_> = now.difference(&planned).filter(|claim| !run.replaces(claim)).collect();
            // Once it comes, it binds pods without nominations in any order, which may leave one out: that is refused.
            let refused = usize::from(run.environment.now_ms() >= until);
            assert!(more.len() <= refused, "seed {seed}: {more:?} beside {planned:?}");
        }
    });
    assert!(launched.get() >= 10, "{}", launched.get());
}
