//! Faults, and changes that users make meanwhile.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use croft_cloud::tags;
use croft_ec2_sim::{capacity_rule::CapacityRule, control::Control, resources::Check, sqs::News};
use croft_simkit::{CLUSTER, Faults, Id, Links};
use serde_json::json;
use tokio::time::sleep;

use crate::run::Run;

const CHECKS: [Check; 3] = [Check::System, Check::Instance, Check::Ebs];
const DAY_MS: u64 = 24 * 3_600_000;

impl Run {
    /// Draws one fault, or one change by a user.
    pub async fn disturb(&mut self) {
        if self.templates.is_next() {
            tracing::debug!(at = %self.environment.clock.true_wall(), "change of templates");
            self.change_templates();
            return;
        }
        let which = self.random.below(46);
        tracing::debug!(which, at = %self.environment.clock.true_wall(), "fault");
        match which {
            0..=3 => self.kill().await,
            4 => self.stop(),
            5 => self.double(),
            6..=10 => self.scale(),
            11 => self.noise(),
            12 => self.part(true),
            13 => self.part(false),
            14 | 15 => self.interrupt(),
            16 => self.end_instance(),
            17 => self.lose_claim(),
            18 => self.shortage(),
            19 => self.restore().await,
            20 => self.find_nothing(),
            21 => self.publish_stale(),
            22 => self.overwrite_tag(),
            23 => self.call_elsewhere(),
            24 | 25 => self.delete_node(false),
            26 => self.delete_node(true),
            27 | 28 => self.silence_kubelet(),
            29 => self.keep_scheduler_busy(),
            30 | 31 => self.stall_watches(),
            32 | 33 => self.edit_launches(),
            34 => self.expire_nodes(),
            35 => self.recreate_tenant(),
            36 => self.recreate_class(),
            37 => self.change_prices(),
            38 => self.step_clock(),
            39 => self.use_up_quota(),
            40 => self.fail_launches(),
            41 => self.break_image(),
            42 | 43 => self.replace_token(),
            44 => self.fail_check(),
            45 => self.close_zone(),
            _ => self.scale(),
        }
    }

    /// A controller dies wherever it is, and another starts some time after.
    async fn kill(&mut self) {
        if !self.processes.is_empty() {
            let n = self.random.index(self.processes.len());
            drop(self.processes.remove(n));
        }
        sleep(Duration::from_millis(self.random.between(0, 5_000))).await;
        self.start();
    }

    /// A controller is stopped for a while and goes on, not knowing; another may lead by then.
    fn stop(&mut self) {
        self.double();
        let ms = self.random.between(1_000, 30_000);
        self.for_a_while(ms, |links, on| links.paused.store(on, Ordering::Relaxed));
    }

    fn double(&mut self) {
        if self.processes.len() < 2 {
            self.start();
        }
    }

    /// A controller doesn't reach the API server, or doesn't reach the cloud.
    fn part(&mut self, api: bool) {
        if self.random.permille(500) {
            self.double();
        }
        let ms = self.random.between(2_000, 60_000);
        self.for_a_while(ms, move |links, on| {
            let cut = if api { &links.api_cut } else { &links.cloud_cut };
            cut.store(on, Ordering::Relaxed);
        });
    }

    fn for_a_while(&mut self, ms: u64, set: impl Fn(&Links, bool) + Send + 'static) {
        let n = self.random.index(self.processes.len());
        let Some(process) = self.processes.get(n) else { return };
        let links = Arc::clone(&process.links);
        set(&links, true);
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            set(&links, false);
        });
    }

    fn scale(&mut self) {
        let mut model = self.model.lock().unwrap();
        let n = self.random.index(model.workloads.len());
        model.workloads[n].replicas = self.random.below(7);
    }

    fn noise(&mut self) {
        let permille = self.random.between(0, 150);
        self.environment.set_faults(Faults {
            api_lost: permille,
            api_cut: permille / 2,
            api_conflict: permille,
            api_throttled: permille / 2,
            cloud_lost: permille,
            cloud_cut: permille,
            cloud_throttled: permille,
            slow: permille,
        });
    }

    /// An existing instance, if any.
    fn instance(&mut self) -> Option<String> {
        let alive: Vec<String> = {
            let world = self.environment.world.lock().unwrap();
            world.instances().filter(|(_, i)| i.state.is_alive()).map(|(id, _)| id.clone()).collect()
        };
        self.random.pick(&alive).cloned()
    }

    fn interrupt(&mut self) {
        let Some(id) = self.instance() else { return };
        let news = match self.random.below(4) {
            0 | 1 => News::SpotWarning,
            2 => News::Rebalance,
            _ => News::ScheduledChange,
        };
        self.touch(&id);
        self.environment.world.lock().unwrap().interrupt(&id, news);
        self.notify();
    }

    /// A status check of an instance fails for a while, or its retirement is scheduled.
    fn fail_check(&mut self) {
        let Some(instance) = self.instance() else { return };
        self.touch(&instance);
        let (ms, is_scheduled) = (self.random.between(5_000, 200_000), self.random.permille(300));
        let check = *self.random.pick(&CHECKS).unwrap();
        let world = Arc::clone(&self.environment.world);
        if is_scheduled {
            let (code, not_before) = ("instance-retirement".to_owned(), self.environment.now_ms() + DAY_MS);
            world.lock().unwrap().control(Control::Schedule { instance, code, not_before }).unwrap();
            return;
        }
        let set = move |passes| {
            let instance = instance.clone();
            world.lock().unwrap().control(Control::Check { instance, check, passes }).unwrap();
        };
        set(false);
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            set(true);
        });
    }

    /// Lets checks and watches look at once, not when the models act next.
    fn notify(&self) {
        self.environment.changed.notify_waiters();
    }

    /// The node of an instance may go whatever its pool's budgets are.
    fn touch(&self, instance: &str) {
        self.environment.store.lock().unwrap().touched.insert(instance.to_owned());
    }

    fn end_instance(&mut self) {
        let Some(id) = self.instance() else { return };
        self.touch(&id);
        self.environment.world.lock().unwrap().end_instance(&id, "Server.InternalError");
        self.notify();
    }

    /// Somebody takes a claim away with its finalizer.
    fn lose_claim(&mut self) {
        let mut store = self.environment.store.lock().unwrap();
        let claims: Vec<Id> = store.of_kind("NodeClaim").map(|(id, _)| id.clone()).collect();
        let n = self.random.index(claims.len());
        if let Some(id) = claims.get(n) {
            store.remove(id);
        }
        drop(store);
        self.notify();
    }

    /// Another tool of the account writes its own value over the cluster's tag.
    fn overwrite_tag(&mut self) {
        let Some(id) = self.instance() else { return };
        let tags = [(tags::CLUSTER.to_owned(), "another".to_owned())].into();
        self.environment.world.lock().unwrap().tag_instance(&id, tags);
        self.environment.store.lock().unwrap().hidden.insert(id);
        self.notify();
    }

    /// A controller's credentials are another account's for a while, which has no instance.
    fn call_elsewhere(&mut self) {
        self.environment.store.lock().unwrap().blind = true;
        let ms = self.random.between(5_000, 120_000);
        self.for_a_while(ms, |links, on| links.elsewhere.store(on, Ordering::Relaxed));
    }

    /// A user deletes a Node, or takes its finalizers off as well.
    fn delete_node(&mut self, by_force: bool) {
        let mut store = self.environment.store.lock().unwrap();
        let nodes: Vec<Id> = store.of_kind("Node").map(|(id, _)| id.clone()).collect();
        let n = self.random.index(nodes.len());
        let Some(id) = nodes.get(n) else { return };
        let provider_id =
            store.get(id).and_then(|node| node["spec"]["providerID"].as_str()).unwrap_or_default();
        let instance = croft_cloud::instance_id(provider_id).to_owned();
        store.touched.insert(instance);
        if by_force {
            store.remove(id);
        } else {
            store.delete(id, None, self.environment.clock.true_wall());
        }
        drop(store);
        self.notify();
    }

    /// A kubelet doesn't reach the API server for a while: its Node isn't Ready, and its containers run.
    fn silence_kubelet(&mut self) {
        let Some(id) = self.instance() else { return };
        let now = self.environment.now_ms();
        let until = now + self.random.between(5_000, 120_000);
        self.touch(&id);
        self.model.lock().unwrap().silence(&id, now, until);
    }

    /// kube-scheduler doesn't come to the pods for a while.
    fn keep_scheduler_busy(&mut self) {
        let until = self.environment.now_ms() + self.random.between(5_000, 180_000);
        self.model.lock().unwrap().keep_scheduler_busy(until);
    }

    /// A controller's watch of pods shows nothing new for a while, or some of its watches: they are on a replica of the API
    /// server that lags, while lists and single reads are quorum reads.
    fn stall_watches(&mut self) {
        let ms = self.random.between(5_000, 120_000);
        // Pods are the first kind.
        let kinds = if self.random.permille(500) { 1 } else { self.random.next_u64() };
        self.for_a_while(ms, move |links, on| links.stall(kinds, on));
    }

    /// A controller's token has expired, and the new one isn't there for a while.
    fn replace_token(&mut self) {
        if self.random.permille(500) {
            self.double();
        }
        let ms = self.random.between(500, 60_000);
        self.for_a_while(ms, |links, on| links.unauthorized.store(on, Ordering::Relaxed));
    }

    /// Some types have no capacity left, or all have again.
    fn shortage(&mut self) {
        let families = ["m5.*", "c5.*", "r5.*", "*.large", "none"];
        let rules = (0..self.random.below(3))
            .map(|_| CapacityRule {
                instance_type: self.random.pick(&families).unwrap().to_string(),
                zone: "*".to_owned(),
                capacity_type: if self.random.permille(500) { "spot" } else { "*" }.to_owned(),
                count: Some(self.random.below(3)),
            })
            .collect();
        self.environment.world.lock().unwrap().control(Control::Capacity { rules }).unwrap();
    }

    /// etcd is restored from a backup that was made a while ago.
    async fn restore(&mut self) {
        let backup = self.environment.store.lock().unwrap().backup();
        if let Some(backup) = self.backup.replace(backup) {
            sleep(Duration::from_millis(self.random.between(0, 40_000))).await;
            // The API servers are stopped meanwhile, which ends their connections.
            self.environment.api_down.store(true, Ordering::Relaxed);
            sleep(Duration::from_millis(self.random.between(3_000, 60_000))).await;
            self.environment.api_down.store(false, Ordering::Relaxed);
            let mut store = self.environment.store.lock().unwrap();
            store.restore(backup);
            // An instance terminated since the backup runs nothing, though its Node was Ready then.
            let (world, now) = (self.environment.world.lock().unwrap(), self.environment.clock.true_wall());
            self.model.lock().unwrap().mark_lost(&mut store, &world, now);
            drop((store, world));
            self.notify();
            self.backup = None;
        }
    }

    /// Restores the tag of instances that lost both claim and tag, as an operator does: nothing of Croft's names them.
    pub fn restore_tags(&mut self) {
        let store = self.environment.store.lock().unwrap();
        let held = |id: &str| {
            let provider_ids =
                store.of_kind("NodeClaim").filter_map(|(_, c)| c["status"]["providerId"].as_str());
            provider_ids.into_iter().any(|provider_id| provider_id.ends_with(id))
        };
        let mut world = self.environment.world.lock().unwrap();
        let foreign = |tags: &std::collections::BTreeMap<String, String>| {
            tags.get(tags::CLUSTER).is_some_and(|value| value != CLUSTER)
        };
        let lost: Vec<String> = world
            .instances()
            .filter(|(id, i)| i.state.is_alive() && foreign(&i.tags) && !held(id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            let tags = [(tags::CLUSTER.to_owned(), CLUSTER.to_owned())].into();
            tracing::debug!(id, at = self.environment.now_ms(), "an operator restores its tag");
            world.tag_instance(&id, tags);
            self.helped = Some("tagged");
        }
        drop((store, world));
        self.notify();
    }

    /// Terminates instances whose claims are lost, as the condition asks of an operator.
    pub fn help_out(&mut self) {
        let store = self.environment.store.lock().unwrap();
        let stopped = store.of_kind("TenantPool").any(|(_, pool)| {
            let conditions = pool["status"]["conditions"].as_array();
            conditions.is_some_and(|c| c.iter().any(|c| c["type"] == json!("CollectionStopped")))
        });
        if !stopped {
            return;
        }
        let held: Vec<String> = store
            .of_kind("NodeClaim")
            .filter_map(|(_, claim)| claim["metadata"]["uid"].as_str().map(str::to_owned))
            .collect();
        let mut world = self.environment.world.lock().unwrap();
        let lost: Vec<String> = world
            .instances()
            .filter(|(_, i)| i.state.is_alive())
            .filter(|(_, i)| i.tags.get(tags::CLAIM_UID).is_none_or(|uid| !held.contains(uid)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            tracing::debug!(id, at = self.environment.now_ms(), "an operator terminates it");
            world.end_instance(&id, "Server.ByHand");
            self.helped = Some("terminated");
        }
        drop((store, world));
        self.notify();
    }
}
