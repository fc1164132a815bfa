//! Bottlerocket: settings as TOML.
//!
//! Bottlerocket reads one TOML document, so Croft's tables replace the user's of the same name and the
//! other tables stay as they are. Source: bottlerocket.dev, settings.kubernetes.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{NodeBoot, UserDataError, quoted};
use crate::kubelet::may_set_label;

pub(super) fn render(boot: &NodeBoot<'_>) -> Result<String, UserDataError> {
    let mut tables = read(boot.custom.unwrap_or_default())?;
    let kubernetes = tables.entry("settings.kubernetes".to_owned()).or_default();
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
        if !values.is_empty() {
            let table = tables.entry(format!("settings.kubernetes.{name}")).or_default();
            table.extend(values.iter().map(|(key, value)| (quoted(key), quoted(value))));
        }
    }
    let labels = boot.labels.iter().filter(|(key, _)| may_set_label(key));
    let table = tables.entry("settings.kubernetes.node-labels".to_owned()).or_default();
    table.extend(labels.map(|(key, value)| (quoted(key), quoted(value))));
    // The pool's taints alone: a user's table could otherwise add a second value of the pool's key.
    let mut taints: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for taint in boot.taints {
        let value = taint.value.as_deref().unwrap_or_default();
        taints.entry(quoted(&taint.key)).or_default().push(quoted(&format!("{value}:{}", taint.effect)));
    }
    let table = tables.entry("settings.kubernetes.node-taints".to_owned()).or_default();
    table.extend(taints.into_iter().map(|(key, values)| (key, format!("[{}]", values.join(", ")))));
    if boot.instance_store {
        let table =
            tables.entry("settings.bootstrap-commands.000-croft-instance-storage".to_owned()).or_default();
        table.insert(
            "commands".to_owned(),
            "[[\"apiclient\", \"ephemeral-storage\", \"init\"], [\"apiclient\", \"ephemeral-storage\", \"bind\", \"--dirs\", \"/var/lib/containerd\", \"/var/lib/kubelet\", \"/var/log/pods\"]]".to_owned(),
        );
        table.insert("mode".to_owned(), quoted("always"));
        table.insert("essential".to_owned(), "true".to_owned());
    }
    let mut text = String::new();
    for (name, values) in tables.iter().filter(|(_, values)| !values.is_empty()) {
        let _ = writeln!(text, "[{name}]");
        for (key, value) in values {
            let _ = writeln!(text, "{key} = {value}");
        }
        text.push('\n');
    }
    Ok(text)
}

/// Tables and their lines. Values stay as they are written; a value over several lines is not understood.
fn read(text: &str) -> Result<BTreeMap<String, BTreeMap<String, String>>, UserDataError> {
    let mut tables: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut table = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().replace(['"', '\''], "").clone_into(&mut table);
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(UserDataError::Custom {
                problem: format!("line {} is neither a table nor `key = value`", index + 1),
                remedy: "write Bottlerocket settings in TOML, each value on one line",
            });
        };
        let key = key.trim().trim_matches(['"', '\'']);
        let key = if is_bare(key) { key.to_owned() } else { quoted(key) };
        // Labels and taints are quoted keys in Croft's own lines, so that the same key is the same entry.
        let key = if table.ends_with(".node-labels") || table.ends_with(".node-taints") {
            quoted(key.trim_matches('"'))
        } else {
            key
        };
        tables.entry(table.clone()).or_default().insert(key, value.trim().to_owned());
    }
    Ok(tables)
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}
