//! Where Croft's own pods can run: planned by the scheduler that plans tenants' pods, which follows kube-scheduler.

use std::sync::Arc;

use croft_inspect::{inventory::is_open, simulation::simulate};
use croft_manifest::{Input, LoadOptions, Origin, parse};
use croft_policy::definitions::POOL_NAME_LABEL;
use croft_scheduler::Options;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::ResourceExt as _;

use crate::{
    commands::check::report::{Finding, Problem, fail},
    table::{counted, shortened},
};

/// The Deployments of both processes, as they are installed by default.
const DEPLOYMENTS: [(&str, &str); 2] = [
    (
        "manifests/deploy/controller.yaml",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/deploy/controller.yaml")),
    ),
    (
        "manifests/deploy/webhook.yaml",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/deploy/webhook.yaml")),
    ),
];
/// At most this many nodes are named.
const NAMED: usize = 5;

/// Croft's pods fit onto nodes that are ready and of no pool, beside the pods that run there. `namespace` is Croft's own.
pub(super) fn check(input: &Input, namespace: &str) -> Finding {
    let mut wanted = Input::default();
    wanted.nodes = input.nodes.clone();
    wanted.pods = input.pods.clone();
    wanted.namespaces = input.namespaces.clone();
    wanted.priority_classes = input.priority_classes.clone();
    wanted.nodes.retain(is_usable);
    // Pods that wait elsewhere yield to Croft's, which are critical.
    wanted.pods.retain(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    for mut object in deployments(namespace)? {
        // Replicas are spread over the nodes that are there, however few. The scheduler would count a node to come, which
        // is a domain with no pods.
        if let Some(pod) = object.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
            pod.topology_spread_constraints = None;
        }
        wanted.deployments.put(object, Origin { file: "croft".into(), line: 0 });
    }
    let replicas =
        |deployment: &Deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let pods: i32 = wanted.deployments.iter().map(|deployment| replicas(&deployment.object)).sum();
    let plan = simulate(&wanted, Arc::from([]), &Options::default()).map_err(|error| bug(&error))?.plan;
    let remedy = "add nodes without taints that belong to no pool, as of a managed node group, or let Croft's pods tolerate \
                  the taints of existing ones (values webhook.tolerations, controller.tolerations)";
    let usable: Vec<String> = wanted.nodes.iter().map(|node| node.name_any()).collect();
    if !plan.unschedulable.is_empty() {
        return fail(
            format!(
                "{} of {pods} pods of Croft fit on no node: {} ready, open and of no pool, of {}",
                plan.unschedulable.len(),
                if usable.is_empty() {
                    "none is".to_owned()
                } else {
                    format!("{} are", shortened(&usable, NAMED))
                },
                counted(input.nodes.len(), "node"),
            ),
            remedy,
        );
    }
    if let [only] = usable.as_slice() {
        return Ok(format!(
            "{pods} pods of Croft fit, all onto {only}: with a second such node admission survives the loss of one"
        ));
    }
    Ok(format!("{pods} pods of Croft fit onto {}", shortened(&usable, NAMED)))
}

/// Croft's Deployments, as they are installed by default into `namespace`.
pub(super) fn deployments(namespace: &str) -> Result<Vec<Deployment>, Problem> {
    let options = LoadOptions { namespace: namespace.to_owned() };
    let mut all = Vec::new();
    for (file, text) in DEPLOYMENTS {
        let installed = parse(file, text, &options).map_err(|error| bug(&error))?;
        all.extend(installed.deployments.iter().map(|deployment| {
            let mut object = deployment.object.clone();
            object.metadata.namespace = Some(namespace.to_owned());
            object
        }));
    }
    Ok(all)
}

fn bug(error: &dyn std::fmt::Display) -> Problem {
    Problem::bug("failed to plan Croft's pods", error)
}

/// True for a node that takes pods and belongs to no pool.
fn is_usable(node: &Node) -> bool {
    is_open(node) && !node.labels().contains_key(POOL_NAME_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, more: &str, cpu: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/os: linux, kubernetes.io/hostname: \
             {name}}}}}\nspec: {{{more}}}\nstatus: {{allocatable: {{cpu: '{cpu}', memory: 8Gi, pods: '20'}}, conditions: \
             [{{type: Ready, status: 'True'}}]}}\n---\n"
        )
    }

    fn found(text: &str) -> Result<String, (String, String)> {
        let input = parse("test", text, &LoadOptions { namespace: "default".to_owned() }).unwrap();
        check(&input, "croft-system").map_err(|Problem { what, remedy, .. }| (what, remedy))
    }

    #[test]
    fn pods_fit_onto_open_nodes() {
        let text = [node("a", "", "4"), node("b", "", "4")].concat();
        assert_eq!(found(&text).unwrap(), "5 pods of Croft fit onto a, b");
    }

    #[test]
    fn one_open_node_is_room_for_all() {
        assert!(found(&node("a", "", "4")).unwrap().starts_with("5 pods of Croft fit, all onto a: "));
    }

    #[test]
    fn tainted_cordoned_small_and_absent_nodes_are_no_room() {
        let tainted = node("a", "taints: [{key: gpu, value: 'true', effect: NoSchedule}]", "4");
        for text in [tainted, node("b", "unschedulable: true", "4"), node("c", "", "10m"), String::new()] {
            let (what, remedy) = found(&text).unwrap_err();
            assert!(what.starts_with("5 of 5 pods of Croft fit on no node"), "{what}");
            assert!(remedy.contains("managed node group"), "{remedy}");
        }
    }
}
