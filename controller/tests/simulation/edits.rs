//! Changes that users and other tools make while everything else fails: pools, classes and tenants are edited, deleted and
//! created again, prices change, quotas are used up, tokens and clocks are replaced.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use croft_ec2_sim::{control::Control, resources::LaunchFailure};
use croft_scheduler::{InstanceType, Price};
use croft_simkit::{Environment, Id, Workload, cluster_id};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    run::{Run, ZONES},
    templates::each_of_pool,
};

/// A quota that no run reaches.
const NO_QUOTA: u32 = 1_000_000;

impl Run {
    /// Lets a fault or a sequence of changes go on beside the others. The run isn't at rest before its end.
    pub fn begin(&self, sequence: impl Future<Output = ()> + Send + 'static) {
        let ongoing = Arc::clone(&self.ongoing);
        ongoing.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            sequence.await;
            ongoing.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// True while a fault or a sequence of changes isn't over.
    pub fn is_disturbed(&self) -> bool {
        self.ongoing.load(Ordering::Relaxed) > 0
    }

    /// Changes the spec of an object as a user does.
    pub fn edit(&self, id: &Id, change: impl FnOnce(&mut Value)) {
        let mut store = self.environment.store.lock().unwrap();
        store.edited = true;
        store.edit(id, change);
        drop(store);
        self.environment.changed.notify_waiters();
    }

    fn any_pool(&mut self) -> Id {
        let name = if self.random.permille(500) { "pool-a" } else { "pool-b" };
        cluster_id("TenantPool", name)
    }

    /// A pool's nodes get another label, or the class other tags: every node drifts.
    pub fn edit_launches(&mut self) {
        let value = self.random.below(3).to_string();
        if self.random.permille(300) {
            self.edit(&cluster_id("EC2NodeClass", "class"), |class| {
                class["spec"]["tags"] = json!({"edited": value})
            });
        } else {
            let pool = self.any_pool();
            self.edit(&pool, |pool| {
                each_of_pool(pool, |template| template["metadata"] = json!({"labels": {"edited": value}}));
            });
        }
    }

    /// A pool's nodes expire for some minutes.
    pub fn expire_nodes(&mut self) {
        let (pool, ms) = (self.any_pool(), self.random.between(200_000, 500_000));
        self.edit(&pool, |pool| {
            each_of_pool(pool, |template| template["spec"]["expireAfter"] = json!("5m"));
        });
        let environment = Arc::clone(&self.environment);
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            environment.store.lock().unwrap().edit(&pool, keep_nodes);
            environment.changed.notify_waiters();
        });
    }

    /// A zone is declared bad for some minutes, if there is a CroftConfig.
    pub fn close_zone(&mut self) {
        let (ms, evacuates) = (self.random.between(20_000, 300_000), self.random.permille(500));
        let state = if evacuates { "Evacuate" } else { "NoLaunches" };
        let name = *self.random.pick(&ZONES).unwrap();
        let config = cluster_id("CroftConfig", "default");
        self.edit(&config, |config| {
            config["spec"]["zones"] = json!([{"name": name, "state": state, "reason": "an incident"}]);
        });
        let environment = Arc::clone(&self.environment);
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            environment.store.lock().unwrap().edit(&config, open_zones);
            environment.changed.notify_waiters();
        });
    }

    /// Applies what users have declared and a restored backup lacks, and ends the expiry of nodes and the closing of zones that it
    /// brought back. A deletion that it brought back comes to its end first: until then no Tenant names the pool.
    pub fn apply(&self) {
        let mut store = self.environment.store.lock().unwrap();
        let now = self.environment.clock.true_wall();
        for (id, object) in self.declared.iter().filter(|(id, _)| id.0 != "DaemonSet") {
            let pool = object["spec"]["pools"][0]
                .as_str()
                .and_then(|pool| store.get(&cluster_id("TenantPool", pool)));
            if pool.is_some_and(|pool| !pool["metadata"]["deletionTimestamp"].is_null()) {
                store.delete(id, None, now);
                continue;
            }
            store.create(id.clone(), object.clone(), now);
            if id.0 == "CroftConfig" {
                store.edit(id, open_zones);
            }
            if id.0 == "TenantPool" {
                store.edit(id, keep_nodes);
            }
        }
        drop(store);
        self.environment.changed.notify_waiters();
    }

    /// A Tenant is deleted and created again, with its pool at times: the pool's nodes are drained first. A
    /// PodDisruptionBudget would block that for ever, since no node takes the pods that were evicted.
    pub fn recreate_tenant(&mut self) {
        let name = if self.random.permille(500) { "a" } else { "b" };
        let (tenant, pool) = (
            cluster_id("Tenant", &format!("tenant-{name}")),
            cluster_id("TenantPool", &format!("pool-{name}")),
        );
        let blocks = |workload: &Workload| workload.pool == pool.2 && workload.max_unavailable.is_some();
        let with_pool = self.random.permille(500) && !self.model.lock().unwrap().workloads.iter().any(blocks);
        let pause = Duration::from_millis(self.random.between(0, 30_000));
        let environment = Arc::clone(&self.environment);
        self.begin(async move {
            let old_pool = if with_pool { delete(&environment, &pool) } else { None };
            let mut old_tenant = delete(&environment, &tenant);
            sleep(pause).await;
            if let Some(old) = old_pool {
                while is_going(&environment, &pool) {
                    sleep(Duration::from_secs(1)).await;
                    // Another user or a restore has brought it back: the pool's condition says that it is in the way.
                    old_tenant = delete(&environment, &tenant).or(old_tenant);
                }
                create(&environment, &pool, old);
            }
            if let Some(old) = old_tenant {
                create(&environment, &tenant, old);
            }
        });
    }

    /// The class is deleted and created again.
    pub fn recreate_class(&mut self) {
        let class = cluster_id("EC2NodeClass", "class");
        let pause = Duration::from_millis(self.random.between(0, 60_000));
        let environment = Arc::clone(&self.environment);
        self.begin(async move {
            let old = delete(&environment, &class);
            sleep(pause).await;
            if let Some(old) = old {
                while is_going(&environment, &class) {
                    sleep(Duration::from_secs(1)).await;
                }
                create(&environment, &class, old);
            }
        });
    }

    /// Some prices change.
    pub fn change_prices(&mut self) {
        let mut types: Vec<InstanceType> = self.environment.types().to_vec();
        for kind in &mut types {
            for offering in &mut kind.offerings {
                if self.random.permille(300) {
                    let share = i64::try_from(self.random.between(60, 160)).unwrap();
                    offering.price =
                        offering.price.map(|price| Price::from_micros(price.micros() * share / 100));
                }
            }
        }
        self.environment.set_types(types.into());
    }

    /// A controller's wall clock is set, forwards or back.
    pub fn step_clock(&mut self) {
        let n = self.random.index(self.processes.len());
        let skew = i64::try_from(self.random.between(0, 60_000)).unwrap() - 30_000;
        if let Some(process) = self.processes.get(n) {
            process.skew_ms.store(skew, Ordering::Relaxed);
        }
    }

    /// The account's quota of processors is used up for a while.
    pub fn use_up_quota(&mut self) {
        let (quota, ms) = (self.random.between(0, 24), self.random.between(5_000, 120_000));
        self.set_quota(u32::try_from(quota).unwrap());
        let world = Arc::clone(&self.environment.world);
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            let control = Control::Quota { vcpus: Some(NO_QUOTA), launch_templates: None };
            world.lock().unwrap().control(control).unwrap();
        });
    }

    fn set_quota(&self, quota: u32) {
        let control = Control::Quota { vcpus: Some(quota), launch_templates: None };
        self.environment.world.lock().unwrap().control(control).unwrap();
    }

    /// Instances of some types end instead of running, as with an encryption key that the role may not use.
    pub fn fail_launches(&mut self) {
        let families = ["m5.*", "c5.*", "r5.*", "*"];
        let rule = LaunchFailure {
            instance_type: self.random.pick(&families).unwrap().to_string(),
            zone: "*".to_owned(),
            reason: "Client.InvalidKMSKey.InvalidState: the key can't be used".to_owned(),
            times: Some(self.random.between(1, 3)),
        };
        self.environment
            .world
            .lock()
            .unwrap()
            .control(Control::LaunchFailures { rules: vec![rule] })
            .unwrap();
    }

    /// Instances don't boot for a while: each is replaced once its registration is overdue, by another that doesn't.
    pub fn break_image(&mut self) {
        let ms = self.random.between(5_000, 400_000);
        let world = Arc::clone(&self.environment.world);
        world.lock().unwrap().control(Control::Boots { works: false }).unwrap();
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            world.lock().unwrap().control(Control::Boots { works: true }).unwrap();
        });
    }
}

/// No zone is closed any more.
fn open_zones(config: &mut Value) {
    if let Some(spec) = config["spec"].as_object_mut() {
        spec.remove("zones");
    }
}

/// Nodes don't expire any more.
fn keep_nodes(pool: &mut Value) {
    each_of_pool(pool, |template| {
        if let Some(spec) = template["spec"].as_object_mut() {
            spec.remove("expireAfter");
        }
    });
}

/// Deletes an object as a user does, and returns what the user would apply again.
fn delete(environment: &Environment, id: &Id) -> Option<Value> {
    let mut store = environment.store.lock().unwrap();
    store.edited = true;
    let object = declared(store.get(id)?);
    store.delete(id, None, environment.clock.true_wall());
    drop(store);
    environment.changed.notify_waiters();
    Some(object)
}

/// A user's file of an object: it has no status. The tenant controller isn't simulated, so a pool is accepted from the start.
pub fn declared(object: &Value) -> Value {
    let mut file = object.clone();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let accepted: Vec<Value> = conditions.into_iter().filter(|c| c["type"] == json!("Accepted")).collect();
    file["status"] = json!({"conditions": accepted});
    file["metadata"] = json!({});
    file
}

/// True while an object is being deleted. After a restore it may be there as if it had never been deleted.
fn is_going(environment: &Environment, id: &Id) -> bool {
    let store = environment.store.lock().unwrap();
    store.get(id).is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null())
}

fn create(environment: &Environment, id: &Id, object: Value) {
    let now = environment.clock.true_wall();
    environment.store.lock().unwrap().create(id.clone(), object, now);
    environment.changed.notify_waiters();
}
