//! A model of kube-scheduler's queue, for plans with nominations.

use std::{cmp::Reverse, collections::BTreeSet};

use croft_scheduler::{Cluster, Plan, PodKey};
use croft_simkit::Random;

use super::{
    homes,
    model::{Node, allows},
    new_nodes,
    scene::{Scene, Template},
};

fn key(pod: &str) -> PodKey {
    PodKey::new("default", pod)
}

/// A pod that waits.
struct Waiting<'a> {
    template: &'a Template,
    name: &'a str,
    nominated: Option<&'a str>,
}

/// Pods in the order of kube-scheduler's queue.
#[derive(Default)]
struct Queue<'a>(Vec<Waiting<'a>>);

impl<'a> Queue<'a> {
    fn extend(&mut self, pods: impl Iterator<Item = Waiting<'a>>) {
        self.0.extend(pods);
        self.0.sort_by_key(|pod| (Reverse(pod.template.priority), pod.name));
    }

    /// True if `pod` may be bound to `nodes[at]`, also if the pods that are nominated to it were there, those of its priority and
    /// above. Their anti-affinity is seen only if InterPodAffinity has something to do for `pod` without them.
    fn is_feasible(&self, nodes: &[Node], pod: &Waiting<'_>, at: usize) -> bool {
        let counts = |other: &&Waiting<'_>| {
            other.name != pod.name
                && other.template.priority >= pod.template.priority
                && other.nominated == Some(&nodes[at].name)
        };
        let mut bound = nodes.iter().flat_map(|node| node.pods.values());
        let is_seen = !pod.template.near.is_empty()
            || !pod.template.apart.is_empty()
            || bound.any(|there| there.apart.iter().any(|term| term.selector.matches(pod.template)));
        let mut with = nodes.to_vec();
        for other in self.0.iter().filter(counts) {
            let apart = if is_seen { other.template.apart.clone() } else { Vec::new() };
            with[at].pods.insert(other.name.to_owned(), Template { apart, ..other.template.clone() });
        }
        allows(nodes, pod.template, at) && allows(&with, pod.template, at)
    }

    /// Binds pods as long as one can be: each to the node that it is nominated to, or else to any. A pod that no node takes
    /// loses its nomination.
    fn schedule(&mut self, nodes: &mut [Node], random: &mut Random) {
        let mut next = 0;
        while let Some(pod) = self.0.get(next) {
            let feasible: Vec<usize> =
                (0..nodes.len()).filter(|at| self.is_feasible(nodes, pod, *at)).collect();
            let told = feasible.iter().find(|at| pod.nominated == Some(&nodes[**at].name));
            if let Some(at) = told.or_else(|| random.pick(&feasible)) {
                let pod = self.0.remove(next);
                nodes[*at].pods.insert(pod.name.to_owned(), pod.template.clone());
                // The pods that were refused are tried again.
                next = 0;
            } else {
                self.0[next].nominated = None;
                next += 1;
            }
        }
    }
}

/// The pods of a plan that may be nominated to `nodes`, which are there.
fn nominable(cluster: &mut Cluster, nodes: &[Node], homes: &[(&Template, &str, &str)]) -> BTreeSet<String> {
    let mut result = BTreeSet::new();
    for node in nodes {
        let pods = homes.iter().filter(|(.., home)| *home == node.name);
        let pods: Vec<PodKey> = pods.map(|(_, pod, _)| key(pod)).collect();
        let object = node.object();
        cluster.remove_coming(&node.name);
        cluster.upsert_node(&object).unwrap();
        pods.iter().for_each(|pod| cluster.nominate(pod, &node.name, false));
        let labels = object.metadata.labels.unwrap();
        result.extend(cluster.nominable(&pods, &labels).into_iter().map(|pod| pod.name.to_string()));
    }
    result
}

/// Opens pods as their nodes come, with the nominations that Croft makes, and returns the planned ones that stay pending. Pods
/// that the plan leaves out come last.
pub fn pending_after<'a>(scene: &'a Scene, plan: &'a Plan, random: &mut Random) -> Vec<&'a str> {
    let homes = homes(scene, plan);
    let mut cluster = scene.cluster();
    for instance in &plan.instances {
        cluster.upsert_coming(instance.coming(&instance.name));
    }
    for (_, pod, home) in &homes {
        cluster.nominate(&key(pod), home, !scene.nodes.iter().any(|node| node.name == *home));
    }
    let mut nodes: Vec<Node> = Vec::new();
    let mut queue = Queue::default();
    for come in [scene.nodes.clone(), scene.coming.clone(), new_nodes(plan).collect()] {
        let nominated = nominable(&mut cluster, &come, &homes);
        let theirs = homes.iter().filter(|(.., home)| come.iter().any(|node| node.name == *home));
        queue.extend(theirs.map(|(template, name, home)| Waiting {
            template,
            name,
            nominated: nominated.contains(*name).then_some(home),
        }));
        nodes.extend(come);
        queue.schedule(&mut nodes, random);
        for node in &nodes {
            for (name, template) in &node.pods {
                cluster.upsert_pod(&template.pod(name, Some(&node.name))).unwrap();
            }
        }
    }
    queue.extend(plan.unschedulable.iter().map(|one| Waiting {
        template: scene.template(&one.pod.name),
        name: &one.pod.name,
        nominated: None,
    }));
    queue.schedule(&mut nodes, random);
    let planned = |pod: &&Waiting<'_>| homes.iter().any(|(_, name, _)| *name == pod.name);
    queue.0.iter().filter(planned).map(|pod| pod.name).collect()
}
