//! Pools of several templates: what a seed draws of them, what users change, and what holds of their instances.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_cloud::tags;
use croft_ec2_sim::{capacity_rule::CapacityRule, control::Control, world::World};
use croft_simkit::{Random, Store, cluster_id};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::run::{Limits, Run};

const LABEL: &str = "croft.dev/template";
/// Names of templates. The first letter is the category of their instances.
const NAMES: [&str; 6] = ["c", "c2", "m", "m2", "r", "r2"];
/// The template that no user removes, with instances of all categories and without a limit: where its pool's limit leaves room, every
/// pod has a place.
const REST: &str = "rest";
/// How many templates a pool may have.
const MOST: usize = 5;
/// Runs of a thousand whose pools may have templates. With the salt, the seeds that were kept before there were any have none, and
/// neither have those up to 13, which other tests play.
const SHARE: u64 = 300;
const SALT: u64 = 0x007E_D081;

/// The templates of a run's pools.
#[derive(Debug)]
pub struct Templates {
    /// Drawn apart, so that a seed without templates is the run that it was.
    random: Random,
    is_on: bool,
    /// Pools that have several.
    pools: Vec<String>,
    /// CPU, in thousandths, that the instances of a template may have together, by pool and name. A name has its limit for the whole
    /// run, whatever users do: a node counts by the name that it was launched by.
    pub limits: BTreeMap<(String, String), i64>,
}

fn category(name: &str) -> Option<&str> {
    name.get(..1).filter(|_| name != REST)
}

impl Templates {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let is_on = random.permille(SHARE);
        Self { random, is_on, pools: Vec::new(), limits: BTreeMap::new() }
    }

    /// True if some pool of the run has several.
    pub fn is_any(&self) -> bool {
        !self.pools.is_empty()
    }

    /// Draws whether the next fault is a change of templates.
    pub fn is_next(&mut self) -> bool {
        self.is_any() && self.random.permille(300)
    }

    /// Gives a pool several templates in place of its only one, in some runs.
    pub fn split(&mut self, name: &str, pool: &mut Value) {
        if !self.is_on || !self.random.permille(700) {
            return;
        }
        let Some(only) = pool["spec"].as_object_mut().and_then(|spec| spec.remove("template")) else {
            return;
        };
        self.pools.push(name.to_owned());
        for template in NAMES {
            let cpu = i64::try_from(self.random.between(4, 24)).unwrap();
            self.limits.insert((name.to_owned(), template.to_owned()), cpu * 1000);
        }
        let mut templates = vec![json!({"name": REST, "spec": only["spec"]})];
        for _ in 0..self.random.between(1, 3) {
            self.add(name, &mut templates);
        }
        let spec = &mut pool["spec"];
        spec["templates"] = json!(templates);
        if self.random.permille(400) {
            spec["return"] = match self.random.below(3) {
                0 => json!({"policy": "Never"}),
                1 => json!({"policy": "WhenConsolidating"}),
                _ => json!({"policy": "Eagerly", "after": "1m"}),
            };
        }
        if self.random.permille(300) {
            spec["shares"] = if only["spec"]["requirements"][0]["values"][0] == "spot" {
                json!([{"capacityType": "spot", "max": "70%"}, {"capacityType": "on-demand", "minNodes": 1}])
            } else {
                json!([{"template": REST, "minNodes": 1}])
            };
        }
    }

    fn weight(&mut self) -> u64 {
        self.random.one_of(&[0, 10, 10, 50])
    }

    fn template(&mut self, pool: &str, name: &str, spec: &Value) -> Value {
        let cpu = self.limits[&(pool.to_owned(), name.to_owned())] / 1000;
        let mut template = json!({"name": name, "weight": self.weight(), "limits": {"cpu": cpu.to_string()},
            "metadata": {"labels": {"example.com/kind": name}}, "spec": spec});
        let requirement = json!({"key": "karpenter.k8s.aws/instance-category", "operator": "In",
            "values": [category(name)]});
        template["spec"]["requirements"].as_array_mut().unwrap().push(requirement);
        if self.random.permille(150) {
            template["replicas"] = json!(1);
        }
        if self.random.permille(200) {
            template["spec"]["taints"] =
                json!([{"key": "example.com/kind", "value": name, "effect": "PreferNoSchedule"}]);
        }
        template
    }

    /// Adds a template of a name that the pool doesn't have, anywhere among the others.
    fn add(&mut self, pool: &str, templates: &mut Vec<Value>) {
        let free = free(templates);
        if templates.len() < MOST
            && let Some(name) = self.random.pick(&free)
        {
            let spec = spec_of_rest(templates);
            let template = self.template(pool, name, &spec);
            let at = self.random.index(templates.len() + 1);
            templates.insert(at, template);
        }
    }

    /// A user's edit: another weight, another order, a template less, one renamed, one more.
    fn change(&mut self, pool: &str, templates: &mut Vec<Value>) {
        let at = self.random.index(templates.len());
        let name = templates[at]["name"].as_str().unwrap().to_owned();
        match self.random.below(5) {
            0 => templates[at]["weight"] = json!(self.weight()),
            1 => templates.rotate_left(at),
            2 if name != REST => drop(templates.remove(at)),
            3 if name != REST => {
                let free = free(templates);
                if let Some(other) = free.into_iter().find(|free| category(free) == category(&name)) {
                    let spec = spec_of_rest(templates);
                    templates[at] = self.template(pool, other, &spec);
                }
            }
            _ => self.add(pool, templates),
        }
    }
}

/// The names that a pool with these templates has no template of.
fn free(templates: &[Value]) -> Vec<&'static str> {
    let is_free = |name: &&str| templates.iter().all(|template| template["name"] != *name);
    NAMES.into_iter().filter(is_free).collect()
}

/// The part of a template that all of a pool have.
fn spec_of_rest(templates: &[Value]) -> Value {
    templates.iter().find(|template| template["name"] == REST).unwrap()["spec"].clone()
}

/// How many nodes a pool of this spec has whatever the demand, as itself or by its templates.
pub fn fixed(spec: &Value) -> u64 {
    let templates = spec["templates"].as_array().into_iter().flatten();
    templates.chain([spec]).filter_map(|sized| sized["replicas"].as_u64()).sum()
}

/// How many nodes a pool of this spec keeps whatever the demand: those of a fixed size, and the least of its shares.
pub fn kept(spec: &Value) -> u64 {
    let shares = spec["shares"].as_array().into_iter().flatten();
    fixed(spec) + shares.filter_map(|share| share["minNodes"].as_u64()).sum::<u64>()
}

/// Names of a pool's nodes without each of which the instances of a capacity type would be more than their share of its CPU.
pub fn kept_by_shares(store: &Store, pool: &str) -> BTreeSet<String> {
    let spec = store.get(&cluster_id("TenantPool", pool)).map(|pool| &pool["spec"]);
    let label =
        |node: &Value, key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    let nodes: Vec<(String, String, u64)> = store
        .of_kind("Node")
        .filter(|(_, node)| label(node, "node-pool") == pool)
        .map(|(id, node)| {
            let cpu = label(node, "karpenter.k8s.aws/instance-cpu").parse().unwrap();
            (id.2.clone(), label(node, "karpenter.sh/capacity-type"), cpu)
        })
        .collect();
    let total: u64 = nodes.iter().map(|(_, _, cpu)| cpu).sum();
    let mut kept = BTreeSet::new();
    for share in spec.into_iter().flat_map(|spec| spec["shares"].as_array()).flatten() {
        let Some(most) = share["max"].as_str() else { continue };
        let most: u64 = most.trim_end_matches('%').parse().unwrap();
        let (of_share, others): (Vec<_>, Vec<_>) =
            nodes.iter().partition(|(_, capacity_type, _)| share["capacityType"] == json!(capacity_type));
        let used: u64 = of_share.iter().map(|(_, _, cpu)| cpu).sum();
        let needed = others.iter().filter(|(_, _, cpu)| used * 100 > most * (total - cpu));
        kept.extend(needed.map(|(name, _, _)| name.clone()));
    }
    kept
}

/// Changes each template of a pool, or the only one that it has.
pub fn each_of_pool(pool: &mut Value, change: impl Fn(&mut Value)) {
    match pool["spec"].get_mut("templates").and_then(Value::as_array_mut) {
        Some(templates) => templates.iter_mut().for_each(change),
        None => change(&mut pool["spec"]["template"]),
    }
}

impl Run {
    /// A user changes the templates of a pool, or what a heavy one launches runs out for a while.
    pub fn change_templates(&mut self) {
        let Some(pool) = self.templates.random.pick(&self.templates.pools).cloned() else { return };
        let id = cluster_id("TenantPool", &pool);
        let known =
            self.environment.store.lock().unwrap().get(&id).map(|pool| pool["spec"]["templates"].clone());
        let Some(Value::Array(mut templates)) = known else { return };
        if self.templates.random.permille(250) {
            self.exhaust(&templates);
            return;
        }
        self.templates.change(&pool, &mut templates);
        self.edit(&id, |pool| pool["spec"]["templates"] = json!(templates));
    }

    /// The cloud has no instance left for the heaviest template, until it has some again.
    fn exhaust(&mut self, templates: &[Value]) {
        let limited = templates.iter().filter(|template| template["name"] != REST);
        let Some(heaviest) = limited.max_by_key(|template| template["weight"].as_i64()) else { return };
        let rule = CapacityRule {
            instance_type: format!("{}5.*", category(heaviest["name"].as_str().unwrap()).unwrap()),
            zone: "*".to_owned(),
            capacity_type: "*".to_owned(),
            count: Some(0),
        };
        let ms = self.templates.random.between(5_000, 180_000);
        let world = Arc::clone(&self.environment.world);
        world.lock().unwrap().control(Control::Capacity { rules: vec![rule] }).unwrap();
        self.begin(async move {
            sleep(Duration::from_millis(ms)).await;
            world.lock().unwrap().control(Control::Capacity { rules: Vec::new() }).unwrap();
        });
    }
}

/// Claims without the template that their pool has to launch by, instances of another category than their template's, and templates
/// above their limits. `known` are the uids of claims that count from their creation on: what the others adopt was launched without
/// them.
pub fn broken(
    store: &Store,
    world: &World,
    limits: &Limits,
    cpus: &BTreeMap<String, i64>,
    known: &BTreeSet<&str>,
) -> Vec<String> {
    let mut broken = Vec::new();
    let mut by_uid: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for (id, claim) in store.of_kind("NodeClaim") {
        let pool = claim["spec"]["pool"].as_str().unwrap_or_default();
        if !limits.templates.keys().any(|(own, _)| own == pool) {
            continue;
        }
        match claim["spec"]["labels"][LABEL].as_str() {
            Some(template) => {
                by_uid.insert(claim["metadata"]["uid"].as_str().unwrap_or_default(), (pool, template));
            }
            None => broken.push(format!("claim {} has no template, and {pool} has several", id.2)),
        }
    }
    let mut cpu: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (id, instance) in world.instances().filter(|(_, instance)| instance.state.is_alive()) {
        let uid = instance.tags.get(tags::CLAIM_UID).map(String::as_str).filter(|uid| known.contains(uid));
        let Some((pool, template)) =
            uid.and_then(|uid| by_uid.get(uid)).copied().filter(|_| !store.hidden.contains(id))
        else {
            continue;
        };
        if category(template).is_some_and(|category| !instance.instance_type.starts_with(category)) {
            broken.push(format!("{id} is a {}, and template {template} has none", instance.instance_type));
        }
        *cpu.entry((pool, template)).or_default() += cpus[&instance.instance_type];
    }
    for ((pool, template), limit) in &limits.templates {
        let own = cpu.get(&(pool.as_str(), template.as_str())).copied().unwrap_or_default();
        if own > *limit {
            broken.push(format!("template {template} of {pool} has {own}m cpu of at most {limit}m"));
        }
    }
    broken
}
