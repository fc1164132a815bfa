//! Bottlerocket: settings as TOML.
//!
//! Bottlerocket reads one TOML document. Croft's settings are merged into the user's as Bottlerocket merges settings
//! from several sources: tables key by key, everything else replaced. Source: bottlerocket.dev, settings.kubernetes.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::model::{NodeBoot, UserDataError};
use crate::kubelet::may_set_label;

pub(super) fn render(boot: &NodeBoot<'_>) -> Result<String, UserDataError> {
    let mut document = read(boot.custom.unwrap_or_default())?;
    let mut settings = Table::new();
    settings.insert("kubernetes".to_owned(), kubernetes(boot).into());
    if boot.instance_store {
        settings.insert("bootstrap-commands".to_owned(), instance_storage().into());
    }
    merge(&mut document, Table::from_iter([("settings".to_owned(), settings.into())]), "")?;
    Ok(document.to_string())
}

fn kubernetes(boot: &NodeBoot<'_>) -> Table {
    let mut table = Table::new();
    let mut put = |name: &str, value: Value| {
        if value.as_table().is_none_or(|inner| !inner.is_empty()) {
            table.insert(name.to_owned(), value);
        }
    };
    put("api-server", boot.endpoint.into());
    put("cluster-certificate", boot.ca.into());
    put("cluster-name", boot.cluster.into());
    if let Some(pods) = boot.kubelet.max_pods {
        put("max-pods", i64::from(pods).into());
    }
    if !boot.kubelet.cluster_dns.is_empty() {
        put("cluster-dns-ip", boot.kubelet.cluster_dns.clone().into());
    }
    put("kube-reserved", texts(&boot.kubelet.kube_reserved).into());
    put("system-reserved", texts(&boot.kubelet.system_reserved).into());
    put("eviction-hard", texts(&boot.kubelet.eviction_hard).into());
    put("node-labels", texts(boot.labels.iter().filter(|(key, _)| may_set_label(key))).into());
    // Only the pool's taints: a user's table could add a second value of the pool's key.
    let mut taints: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for taint in boot.taints {
        let value = taint.value.as_deref().unwrap_or_default();
        taints.entry(&taint.key).or_default().push(format!("{value}:{}", taint.effect));
    }
    let taints = taints.into_iter().map(|(key, values)| (key.to_owned(), Value::from(values)));
    put("node-taints", taints.collect::<Table>().into());
    table
}

/// A table of texts.
fn texts<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Table {
    pairs.into_iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
}

/// The local disks become one RAID 0 under the kubelet and the container runtime.
fn instance_storage() -> Table {
    let command = |words: &[&str]| {
        let words = ["apiclient", "ephemeral-storage"].iter().chain(words);
        Value::from(words.map(|word| Value::from(*word)).collect::<Vec<_>>())
    };
    let commands = vec![
        command(&["init"]),
        command(&["bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]),
    ];
    let command: Table = [
        ("commands".to_owned(), commands.into()),
        ("mode".to_owned(), "always".into()),
        ("essential".to_owned(), true.into()),
    ]
    .into_iter()
    .collect();
    Table::from_iter([("000-croft-instance-storage".to_owned(), command.into())])
}

/// The user's settings.
fn read(text: &str) -> Result<Table, UserDataError> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        UserDataError::Custom {
            problem: format!("line {line}: {}", error.message().replace('\n', ", ")),
            remedy: "write Bottlerocket settings in TOML",
        }
    })
}

/// Merges `new` into the table at `path`.
fn merge(into: &mut Table, new: Table, path: &str) -> Result<(), UserDataError> {
    for (key, value) in new {
        let name = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new, &name)?,
            (Some(old), Value::Table(_)) => {
                return Err(UserDataError::Custom {
                    problem: format!("{name} is of type {}, and Croft adds to it", old.type_str()),
                    remedy: "write it as a table",
                });
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
    Ok(())
}
