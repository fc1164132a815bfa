//! AL2023: NodeConfigs for nodeadm.
//!
//! nodeadm merges NodeConfigs in order, later over earlier; lists are replaced. Source: awslabs/amazon-eks-ami,
//! nodeadm/doc/usage.md.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    mime::{self, NODE_CONFIG, Part},
    model::{NodeBoot, UserDataError},
};

pub(super) fn render(boot: &NodeBoot<'_>) -> Result<String, UserDataError> {
    let mut parts = mime::custom_parts(boot.custom.unwrap_or_default())?;
    parts.push(Part::new(NODE_CONFIG, node_config(boot)));
    Ok(mime::write(&parts))
}

/// `text` as a JSON string, which is a YAML string as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn node_config(boot: &NodeBoot<'_>) -> String {
    let mut y = String::from("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n");
    for (key, value) in [
        ("name", boot.cluster),
        ("apiServerEndpoint", boot.endpoint),
        ("certificateAuthority", boot.ca),
        ("cidr", boot.service_cidr),
    ] {
        let _ = writeln!(y, "    {key}: {}", quoted(value));
    }
    if boot.instance_store {
        y.push_str("  instance:\n    localStorage:\n      strategy: RAID0\n");
    }
    y.push_str("  kubelet:\n    config:\n");
    if let Some(pods) = boot.kubelet.max_pods {
        let _ = writeln!(y, "      maxPods: {pods}");
    }
    if !boot.kubelet.cluster_dns.is_empty() {
        y.push_str("      clusterDNS:\n");
        for address in &boot.kubelet.cluster_dns {
            let _ = writeln!(y, "      - {}", quoted(address));
        }
    }
    map(&mut y, "kubeReserved", &boot.kubelet.kube_reserved);
    map(&mut y, "systemReserved", &boot.kubelet.system_reserved);
    map(&mut y, "evictionHard", &boot.kubelet.eviction_hard);
    if boot.taints.is_empty() {
        // For nodeadm an empty list replaces an earlier part's list.
        y.push_str("      registerWithTaints: []\n");
    } else {
        y.push_str("      registerWithTaints:\n");
        for taint in boot.taints {
            let value = taint.value.as_deref().unwrap_or_default();
            let (key, effect) = (quoted(&taint.key), quoted(&taint.effect));
            let _ =
                writeln!(y, "      - key: {key}\n        value: {}\n        effect: {effect}", quoted(value));
        }
    }
    let labels = boot.node_labels();
    if !labels.is_empty() {
        let _ = writeln!(y, "    flags:\n    - {}", quoted(&format!("--node-labels={labels}")));
    }
    y
}

fn map(y: &mut String, name: &str, values: &BTreeMap<String, String>) {
    if values.is_empty() {
        return;
    }
    let _ = writeln!(y, "      {name}:");
    for (key, value) in values {
        let _ = writeln!(y, "        {}: {}", quoted(key), quoted(value));
    }
}
