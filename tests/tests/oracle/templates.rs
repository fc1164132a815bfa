//! Pools of several templates, drawn over a scene from a stream of their own: a seed gives what it gave without them.

use std::mem;

use croft_scheduler::{Pool, Requirement};
use croft_simkit::Random;
use serde_json::{Value, json};

use super::{
    fleet::{self, CAPACITY, TEMPLATE, taint},
    generate::Scene,
    pods::Group,
};

/// Key of the taint that a template has of its own.
const RESERVED: &str = "reserved";
/// A label that templates give to nodes, and its values.
const SORT: &str = "sort";
const SORTS: [&str; 2] = ["x", "y"];
/// A resource that templates declare: no instance type has it.
const SLICE: &str = "example.com/slice";
const SLICES: &str = "4";
/// Scenes of a hundred whose pools may have templates. With the salt, the seeds that were kept before there were any have none.
const SHARE: u64 = 60;
const SALT: u64 = 0x0094_C33B;
const NAMES: [&str; 3] = ["t0", "t1", "t2"];
/// A pool's own weight counts before those of its templates, as `croft_api::convert` has it.
const WEIGHT_OF_POOL: i32 = 101;

impl Scene {
    /// Splits some of its pools into templates: their nodes are of one of them, and pods ask for some.
    pub fn with_templates(mut self) -> Self {
        let random = &mut Random::new(self.seed ^ SALT);
        if !random.percent(SHARE) {
            return self;
        }
        for mut pool in mem::take(&mut self.pools) {
            pool.weight *= WEIGHT_OF_POOL;
            if random.percent(70) {
                self.pools.extend(split(random, &pool));
            } else {
                self.pools.push(pool);
            }
        }
        if self.pools.iter().all(|pool| pool.template.is_empty()) {
            return self;
        }
        for node in &mut self.nodes {
            let templates = templates(&self.pools, node["metadata"]["labels"]["node-pool"].as_str());
            settle(random, node, &templates);
        }
        for coming in &mut self.coming {
            let templates = templates(&self.pools, Some(&coming.pool));
            if !templates.is_empty() {
                *coming = fleet::coming(random, &templates, &coming.claim);
            }
        }
        for group in &mut self.waiting {
            ask(random, group);
        }
        self
    }
}

/// The templates of the pool of this name; none if it has only one kind of node.
fn templates(pools: &[Pool], name: Option<&str>) -> Vec<Pool> {
    let of_name = |pool: &&Pool| !pool.template.is_empty() && Some(pool.name.as_str()) == name;
    pools.iter().filter(of_name).cloned().collect()
}

fn split(random: &mut Random, pool: &Pool) -> Vec<Pool> {
    let count = 2 + random.index(NAMES.len() - 1);
    NAMES.into_iter().take(count).map(|name| template(random, pool, name)).collect()
}

fn template(random: &mut Random, pool: &Pool, name: &str) -> Pool {
    let mut template = Pool { template: name.to_owned(), ..pool.clone() };
    template.weight += random.one_of(&[0, 0, 10, 50]);
    match random.index(5) {
        0 => template.requirements.push(Requirement::any_of("kubernetes.io/arch", ["arm64"])),
        1 => {
            let family = random.one_of(&["c", "r", "m"]);
            template.requirements.push(Requirement::any_of("karpenter.k8s.aws/instance-family", [family]));
        }
        2 => {
            template.requirements.retain(|requirement| requirement.key != CAPACITY);
            template.requirements.push(Requirement::any_of(CAPACITY, ["spot"]));
        }
        _ => {}
    }
    if random.percent(40) {
        template.labels.insert(SORT.to_owned(), random.one_of(&SORTS).to_owned());
    }
    if random.percent(40) {
        let effect = random.one_of(&["NoSchedule", "NoSchedule", "PreferNoSchedule"]);
        template.taints.push(taint(RESERVED, name, effect));
    }
    if random.percent(20) {
        template.startup_taints.push(taint("warming", "yes", "NoSchedule"));
    }
    if random.percent(25) {
        let (resource, most) = random.one_of(&[("nodes", "1"), ("nodes", "2"), ("cpu", "8")]);
        template.template_limits.insert(resource.to_owned(), most.parse().unwrap());
    }
    if random.percent(25) {
        let mut kinds = template.instance_types.to_vec();
        kinds.iter_mut().for_each(|kind| kind.capacity.set_quantity(SLICE, SLICES.parse().unwrap()));
        template.instance_types = kinds.into();
    }
    template
}

/// Makes a node of the pool one of a template. Some are older than the templates, or of one that was removed.
fn settle(random: &mut Random, node: &mut Value, templates: &[Pool]) {
    let Some(template) = random.pick(templates) else { return };
    let labels = &mut node["metadata"]["labels"];
    match random.index(8) {
        0 => return,
        1 => {
            labels[TEMPLATE] = json!("removed");
            return;
        }
        _ => labels[TEMPLATE] = json!(template.template),
    }
    for (key, value) in &template.labels {
        labels[key] = json!(value);
    }
    let own = template.taints.iter().filter(|taint| taint.key == RESERVED).map(|taint| json!(taint));
    node["spec"]["taints"].as_array_mut().unwrap().extend(own);
    if template.instance_types.iter().any(|kind| kind.capacity.get(SLICE) > 0) {
        for amounts in ["capacity", "allocatable"] {
            node["status"][amounts][SLICE] = json!(SLICES);
        }
    }
}

/// Lets pods ask for a template by its name, its label or its resource, avoid it, or tolerate its taint.
fn ask(random: &mut Random, group: &mut Group) {
    let spec = &mut group.spec;
    if random.percent(20) {
        spec["nodeSelector"][TEMPLATE] = json!(random.one_of(&NAMES));
    }
    if random.percent(12) {
        spec["nodeSelector"][SORT] = json!(random.one_of(&SORTS));
    }
    if random.percent(50) {
        let toleration = if random.percent(30) {
            json!({"key": RESERVED, "operator": "Exists"})
        } else {
            json!({"key": RESERVED, "operator": "Equal", "value": random.one_of(&NAMES), "effect": "NoSchedule"})
        };
        spec["tolerations"].as_array_mut().unwrap().push(toleration);
    }
    if random.percent(12) && spec["affinity"]["nodeAffinity"].is_null() {
        let (key, value) = random.one_of(&[(TEMPLATE, NAMES[0]), (TEMPLATE, NAMES[1]), (SORT, SORTS[0])]);
        let operator = random.one_of(&["In", "NotIn"]);
        let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]});
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [term]});
    }
    if random.percent(10) {
        let count = random.one_of(&["1", "3"]);
        for amounts in ["requests", "limits"] {
            spec["containers"][0]["resources"][amounts][SLICE] = json!(count);
        }
    }
}
