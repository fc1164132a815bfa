//! The pods that may read the metrics of the processes, which have each tenant's cost and use.

use serde_json::{Value, json};

use super::render::{deployment, objects, rendered, text};

/// The rules of each NetworkPolicy for pods of the process that admit connections to the port of metrics.
fn admitted(objects: &[Value], process: &str) -> Vec<Value> {
    let labels = deployment(objects, process)["spec"]["template"]["metadata"]["labels"].clone();
    let policies: Vec<&Value> = objects
        .iter()
        .filter(|object| text(object, "/kind") == "NetworkPolicy")
        .filter(|policy| {
            let selected = policy["spec"]["podSelector"]["matchLabels"].as_object().unwrap();
            selected.iter().all(|(key, value)| labels[key] == *value)
        })
        .collect();
    assert!(!policies.is_empty(), "without a policy every pod may read the metrics of croft-{process}");
    let mut rules = Vec::new();
    for policy in policies {
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
        let is_open = |rule: &&Value| {
            let ports = rule["ports"].as_array();
            ports.is_none_or(|ports| ports.iter().any(|port| port["port"] == "health"))
        };
        rules.extend(policy["spec"]["ingress"].as_array().unwrap().iter().filter(is_open).cloned());
    }
    rules
}

#[test]
fn metrics_are_for_scrapers_alone() {
    let scrapers =
        json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]);
    let named = format!("--set-json=scrapers={scrapers}");
    for (arguments, expected) in [
        (vec!["--set=page.enabled=true"], vec![]),
        (
            vec!["--set=page.enabled=true,serviceMonitor.enabled=true", named.as_str()],
            vec![json!({"from": scrapers, "ports": [{"port": "health", "protocol": "TCP"}]})],
        ),
    ] {
        let all = objects(&rendered("croft-system", &arguments).unwrap());
        for process in ["controller", "webhook", "page"] {
            assert_eq!(admitted(&all, process), expected, "{process} with {arguments:?}");
        }
    }
}
