//! Bottlerocket: settings as TOML.
//!
//! Bottlerocket reads one TOML document, so Croft's values replace the user's values of the same keys and the rest is
//! kept. Source: bottlerocket.dev, settings.kubernetes.

use std::collections::BTreeMap;

use super::{
    model::{NodeBoot, UserDataError},
    quoting::quoted,
    toml::{Mistake, Tables},
};
use crate::kubelet::may_set_label;

/// Tables below settings.kubernetes that Croft writes to.
const OURS: [&str; 5] = ["kube-reserved", "system-reserved", "eviction-hard", "node-labels", "node-taints"];

pub(super) fn render(boot: &NodeBoot<'_>) -> Result<String, UserDataError> {
    let mut tables = read(boot.custom.unwrap_or_default())?;
    let kubernetes = tables.table(&["settings", "kubernetes"]);
    kubernetes.insert("api-server".to_owned(), quoted(boot.endpoint));
    kubernetes.insert("cluster-certificate".to_owned(), quoted(boot.ca));
    kubernetes.insert("cluster-name".to_owned(), quoted(boot.cluster));
    if let Some(pods) = boot.kubelet.max_pods {
        kubernetes.insert("max-pods".to_owned(), pods.to_string());
    }
    if !boot.kubelet.cluster_dns.is_empty() {
        let servers: Vec<String> = boot.kubelet.cluster_dns.iter().map(|s| quoted(s)).collect();
        kubernetes.insert("cluster-dns-ip".to_owned(), format!("[{}]", servers.join(", ")));
    }
    for (name, values) in [
        ("kube-reserved", &boot.kubelet.kube_reserved),
        ("system-reserved", &boot.kubelet.system_reserved),
        ("eviction-hard", &boot.kubelet.eviction_hard),
    ] {
        let table = tables.table(&["settings", "kubernetes", name]);
        table.extend(values.iter().map(|(key, value)| (key.clone(), quoted(value))));
    }
    let labels = boot.labels.iter().filter(|(key, _)| may_set_label(key));
    let table = tables.table(&["settings", "kubernetes", "node-labels"]);
    table.extend(labels.map(|(key, value)| (key.clone(), quoted(value))));
    // Only the pool's taints: a user's table could add a second value of the pool's key.
    let mut taints: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for taint in boot.taints {
        let value = taint.value.as_deref().unwrap_or_default();
        taints.entry(&taint.key).or_default().push(quoted(&format!("{value}:{}", taint.effect)));
    }
    let table = tables.table(&["settings", "kubernetes", "node-taints"]);
    table
        .extend(taints.into_iter().map(|(key, values)| (key.to_owned(), format!("[{}]", values.join(", ")))));
    if boot.instance_store {
        let table = tables.table(&["settings", "bootstrap-commands", "000-croft-instance-storage"]);
        table.insert(
            "commands".to_owned(),
            "[[\"apiclient\", \"ephemeral-storage\", \"init\"], [\"apiclient\", \"ephemeral-storage\", \"bind\", \"--dirs\", \"/var/lib/containerd\", \"/var/lib/kubelet\", \"/var/log/pods\"]]".to_owned(),
        );
        table.insert("mode".to_owned(), quoted("always"));
        table.insert("essential".to_owned(), "true".to_owned());
    }
    Ok(tables.write())
}

/// The user's settings, if Croft's can be added.
fn read(text: &str) -> Result<Tables, UserDataError> {
    let wrong = |problem: String, remedy| UserDataError::Custom { problem, remedy };
    let tables = Tables::read(text).map_err(|Mistake { line, problem }| {
        wrong(format!("line {line} {problem}"), "write Bottlerocket settings in TOML")
    })?;
    let inline = |path: &[&str]| {
        let name = path.join(".");
        let problem = format!("{name} is a value, and Croft adds to it");
        wrong(problem, "write it as a table: its name in brackets, and a line for each key")
    };
    for path in [&["settings"][..], &["settings", "kubernetes"]] {
        if tables.is_value(path) {
            return Err(inline(path));
        }
    }
    for name in OURS {
        let path = ["settings", "kubernetes", name];
        if tables.is_value(&path) {
            return Err(inline(&path));
        }
    }
    Ok(tables)
}
