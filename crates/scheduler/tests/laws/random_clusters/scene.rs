//! Random clusters from a seed: few labels, domains and nodes, so that constraints meet.

use std::collections::BTreeMap;

use croft_scheduler::Cluster;
use croft_simkit::Random;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::model::Node;
use crate::build::{HOST, ZONE, ZONES, add_taint, cluster, coming, kinds, node, pod, pool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Zone,
    Host,
}

impl Topology {
    fn key(self) -> &'static str {
        match self {
            Self::Zone => ZONE,
            Self::Host => HOST,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Selector {
    pub app: &'static str,
    pub tier: Option<&'static str>,
}

impl Selector {
    fn new(random: &mut Random) -> Self {
        let tier = random.percent(25).then_some("front");
        Self { app: random.one_of(&["a", "b"]), tier }
    }

    fn json(&self) -> Value {
        let mut labels = json!({"app": self.app});
        if let Some(tier) = self.tier {
            labels["tier"] = json!(tier);
        }
        json!({"matchLabels": labels})
    }
}

/// A hard topology spread constraint.
#[derive(Clone, Debug)]
pub struct Spread {
    pub over: Topology,
    pub selector: Selector,
    pub max_skew: usize,
    pub min_domains: usize,
    pub honours_affinity: bool,
    pub honours_taints: bool,
}

impl Spread {
    fn new(random: &mut Random, over: Topology) -> Self {
        Self {
            over,
            selector: Selector::new(random),
            max_skew: 1 + random.index(2),
            min_domains: if random.percent(20) { 2 + random.index(3) } else { 1 },
            honours_affinity: random.percent(80),
            honours_taints: random.percent(30),
        }
    }

    fn json(&self) -> Value {
        let honours = |yes: bool| if yes { "Honor" } else { "Ignore" };
        json!({"topologyKey": self.over.key(), "maxSkew": self.max_skew, "minDomains": self.min_domains,
            "nodeAffinityPolicy": honours(self.honours_affinity), "nodeTaintsPolicy": honours(self.honours_taints),
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": self.selector.json()})
    }
}

/// A term of required affinity or anti-affinity between pods.
#[derive(Clone, Debug)]
pub struct Term {
    pub over: Topology,
    pub selector: Selector,
}

impl Term {
    fn new(random: &mut Random) -> Self {
        Self { over: random.one_of(&[Topology::Zone, Topology::Host]), selector: Selector::new(random) }
    }

    fn json(&self) -> Value {
        json!({"topologyKey": self.over.key(), "labelSelector": self.selector.json()})
    }
}

/// The template of a pod.
#[derive(Clone, Debug)]
pub struct Template {
    pub app: &'static str,
    pub tier: Option<&'static str>,
    /// CPU in thousandths.
    pub cpu: i64,
    /// Its node selector.
    pub zone: Option<&'static str>,
    pub tolerates: bool,
    pub priority: i32,
    pub spreads: Vec<Spread>,
    pub near: Vec<Term>,
    pub apart: Vec<Term>,
}

impl Template {
    fn running(random: &mut Random) -> Self {
        Self {
            app: random.one_of(&["a", "b"]),
            tier: random.percent(40).then_some("front"),
            cpu: random.one_of(&[100, 500]),
            zone: None,
            tolerates: true,
            priority: 0,
            spreads: Vec::new(),
            near: Vec::new(),
            apart: if random.percent(15) { vec![Term::new(random)] } else { Vec::new() },
        }
    }

    fn pending(random: &mut Random) -> Self {
        let mut spreads = Vec::new();
        for (over, percent) in [(Topology::Zone, 35), (Topology::Host, 20)] {
            if random.percent(percent) {
                spreads.push(Spread::new(random, over));
            }
        }
        let mut terms = |percent: u64| match random.below(100) {
            drawn if drawn < percent / 5 => vec![Term::new(random), Term::new(random)],
            drawn if drawn < percent => vec![Term::new(random)],
            _ => Vec::new(),
        };
        let (near, apart) = (terms(25), terms(25));
        Self {
            cpu: random.one_of(&[300, 700, 1500, 3000]),
            zone: random.percent(10).then(|| random.one_of(&ZONES)),
            tolerates: random.percent(30),
            priority: if random.percent(20) { random.one_of(&[-10, 10]) } else { 0 },
            spreads,
            near,
            apart,
            ..Self::running(random)
        }
    }

    /// A pod, bound to the node `on`.
    pub fn pod(&self, name: &str, on: Option<&str>) -> Pod {
        let terms = |terms: &[Term]| {
            let terms: Vec<Value> = terms.iter().map(Term::json).collect();
            json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
        };
        let spreads: Vec<Value> = self.spreads.iter().map(Spread::json).collect();
        let mut more = json!({"metadata": {"labels": {"app": self.app}}, "spec": {
            "priority": self.priority, "topologySpreadConstraints": spreads,
            "affinity": {"podAffinity": terms(&self.near), "podAntiAffinity": terms(&self.apart)}}});
        if let Some(tier) = self.tier {
            more["metadata"]["labels"]["tier"] = json!(tier);
        }
        if let Some(zone) = self.zone {
            more["spec"]["nodeSelector"] = json!({ ZONE: zone });
        }
        if self.tolerates {
            more["spec"]["tolerations"] = json!([{"key": "mine", "operator": "Exists"}]);
        }
        if let Some(on) = on {
            more["spec"]["nodeName"] = json!(on);
        }
        pod(name, &format!("{}m", self.cpu), "1Mi", more)
    }
}

impl Node {
    pub fn object(&self) -> k8s_openapi::api::core::v1::Node {
        let labels = self.zone.map_or(json!({}), |zone| json!({ ZONE: zone }));
        let mut result = node(&self.name, &format!("{}m", self.cpu), "64Gi", labels);
        if self.tainted {
            add_taint(&mut result);
        }
        result
    }
}

/// A cluster.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Existing nodes, and coming ones.
    pub nodes: Vec<Node>,
    pub coming: Vec<Node>,
    /// Groups of pending pods: pod `g0-1` is the second of the first.
    pub pending: Vec<(Template, usize)>,
    pub launches: bool,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let nodes = (0..random.index(5)).map(|n| {
            let zone = random.percent(97).then(|| random.one_of(&ZONES));
            let name = format!("n{n}");
            let pods =
                (0..random.index(3)).map(|p| (format!("{name}-{p}"), Template::running(random))).collect();
            Node { name, zone, tainted: random.percent(15), cpu: random.one_of(&[1000, 2000, 4000]), pods }
        });
        let nodes = nodes.collect();
        let coming = (0..if random.percent(25) { 1 + random.index(2) } else { 0 }).map(|n| {
            let zone = Some(random.one_of(&ZONES));
            Node {
                name: format!("c{n}"),
                zone,
                tainted: false,
                cpu: random.one_of(&[2000, 4000]),
                pods: BTreeMap::new(),
            }
        });
        let coming = coming.collect();
        let pending =
            (0..1 + random.index(3)).map(|_| (Template::pending(random), 1 + random.index(4))).collect();
        Self { nodes, coming, pending, launches: random.percent(70) }
    }

    /// The template of a pending pod.
    pub fn template(&self, name: &str) -> &Template {
        let (group, _) = name[1..].split_once('-').unwrap();
        &self.pending[group.parse::<usize>().unwrap()].0
    }

    pub fn cluster(&self) -> Cluster {
        let mut c = cluster(if self.launches { vec![pool("p", kinds())] } else { Vec::new() }, &[]);
        for node in &self.nodes {
            c.upsert_node(&node.object()).unwrap();
            for (name, template) in &node.pods {
                c.upsert_pod(&template.pod(name, Some(&node.name))).unwrap();
            }
        }
        for node in &self.coming {
            let labels = json!({ ZONE: node.zone.unwrap() });
            c.upsert_coming(coming(&node.name, &format!("{}m", node.cpu), "64Gi", labels));
        }
        for (group, (template, count)) in self.pending.iter().enumerate() {
            for number in 0..*count {
                c.upsert_pod(&template.pod(&format!("g{group}-{number}"), None)).unwrap();
            }
        }
        c
    }
}
