//! AL2 and Ubuntu: a script that runs the image's bootstrap.sh.
//!
//! Source: awslabs/amazon-eks-ami, files/bootstrap.sh.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    mime::{self, NODE_CONFIG, Part, SCRIPT},
    model::{NodeBoot, UserDataError},
};

pub(super) fn render(boot: &NodeBoot<'_>) -> Result<String, UserDataError> {
    let mut parts = mime::custom_parts(boot.custom.unwrap_or_default())?;
    if parts.iter().any(|part| part.content_type.starts_with(NODE_CONFIG)) {
        return Err(UserDataError::Custom {
            problem: "a NodeConfig means nothing to images with bootstrap.sh".to_owned(),
            remedy: "write a script, or choose an AL2023 image",
        });
    }
    parts.push(Part::new(SCRIPT, script(boot)));
    Ok(mime::write(&parts))
}

/// `text` in single quotes of a shell.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn script(boot: &NodeBoot<'_>) -> String {
    let mut flags = Vec::new();
    let labels = boot.node_labels();
    if !labels.is_empty() {
        flags.push(format!("--node-labels={labels}"));
    }
    if !boot.taints.is_empty() {
        let taints: Vec<String> = boot
            .taints
            .iter()
            .map(|t| format!("{}={}:{}", t.key, t.value.as_deref().unwrap_or_default(), t.effect))
            .collect();
        flags.push(format!("--register-with-taints={}", taints.join(",")));
    }
    if let Some(pods) = boot.kubelet.max_pods {
        flags.push(format!("--max-pods={pods}"));
    }
    for (name, values) in [
        ("--kube-reserved", &boot.kubelet.kube_reserved),
        ("--system-reserved", &boot.kubelet.system_reserved),
    ] {
        if !values.is_empty() {
            flags.push(format!("{name}={}", joined(values, "=")));
        }
    }
    if !boot.kubelet.eviction_hard.is_empty() {
        flags.push(format!("--eviction-hard={}", joined(&boot.kubelet.eviction_hard, "<")));
    }
    let mut s =
        String::from("#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log | logger -t user-data) 2>&1\n");
    let _ = write!(
        s,
        "/etc/eks/bootstrap.sh {} --apiserver-endpoint {} --b64-cluster-ca {}",
        shell_quoted(boot.cluster),
        shell_quoted(boot.endpoint),
        shell_quoted(boot.ca),
    );
    if let Some(dns) = boot.kubelet.cluster_dns.first() {
        let _ = write!(s, " --dns-cluster-ip {}", shell_quoted(dns));
    }
    if boot.kubelet.max_pods.is_some() {
        s.push_str(" --use-max-pods 'false'");
    }
    if boot.instance_store {
        s.push_str(" --local-disks 'raid0'");
    }
    if !flags.is_empty() {
        let _ = write!(s, " --kubelet-extra-args {}", shell_quoted(&flags.join(" ")));
    }
    s.push('\n');
    s
}

fn joined(values: &BTreeMap<String, String>, between: &str) -> String {
    let pairs: Vec<String> = values.iter().map(|(key, value)| format!("{key}{between}{value}")).collect();
    pairs.join(",")
}
