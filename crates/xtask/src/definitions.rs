//! Reference pages of the names that users see, generated from each crate's definitions: metrics, conditions, events,
//! labels and annotations, admission rules.

use std::{collections::BTreeMap, fmt::Write as _};

use croft_cloud::LaunchError;
use croft_controller::definitions as controller;
use croft_policy::documented::Key;
use croft_scheduler::ReasonKind;
use croft_webhook::definitions as webhook;

use crate::{
    generated::File,
    references::{one_line, page},
};

pub(crate) fn files() -> anyhow::Result<Vec<File>> {
    Ok(vec![
        page("metrics.md", &metrics()?),
        page("conditions-and-events.md", &conditions_and_events()?),
        page("labels-and-annotations.md", &keys()?),
        page("admission-rules.md", &admission_rules()?),
    ])
}

fn metrics() -> anyhow::Result<String> {
    let mut out = String::from(
        "# Metrics\n\nServed at `/metrics` of each process's health port. Names of counters end in `_total`, of durations in \
         `_seconds`.\n\nThe labels `tenant` and `pool` have names of existing Tenants and TenantPools only, and a series goes with its \
         object: `tenant` is empty for a pool that several tenants or none use, `pool` for a pod that no pool is known to take. No label \
         has the name of a pod or node. Figures of the cluster are shown by the replica that leads.\n\n| stability | meaning |\n|---|---|\n",
    );
    for level in controller::metrics::Stability::ALL {
        writeln!(out, "| {} | {} |", level.as_str(), level.description())?;
    }
    for (title, metrics) in [
        ("Webhook", webhook::METRICS),
        ("Controller", controller::metrics::METRICS),
        ("Page", croft_page::definitions::METRICS),
    ] {
        writeln!(
            out,
            "\n## {title}\n\n| metric | type | labels | stability | meaning |\n|---|---|---|---|---|"
        )?;
        for metric in metrics {
            let labels =
                metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let (name, kind, level) = (metric.full_name(), metric.kind.as_str(), metric.stability.as_str());
            writeln!(out, "| `{name}` | {kind} | {labels} | {level} | {} |", one_line(metric.help))?;
        }
    }
    Ok(out)
}

fn conditions_and_events() -> anyhow::Result<String> {
    let mut out = String::from("# Conditions and events\n");
    writeln!(out, "\n## Condition types\n\n| type | on | meaning |\n|---|---|---|")?;
    for condition in croft_api::condition::CONDITIONS.iter().chain(controller::conditions::TYPES) {
        writeln!(out, "| `{}` | {} | {} |", condition.name, condition.on, one_line(condition.description))?;
    }
    for (title, of, reasons) in [
        ("Reasons of conditions", "of", controller::conditions::REASONS),
        ("Reasons of events", "on", controller::events::ALL),
    ] {
        writeln!(out, "\n## {title}\n\n| reason | {of} | meaning |\n|---|---|---|")?;
        for reason in reasons {
            writeln!(out, "| `{}` | {} | {} |", reason.name, reason.on, one_line(reason.description))?;
        }
    }
    let pending = ReasonKind::ALL.iter().map(|reason| (reason.as_str(), reason.description()));
    let pending = pending.collect::<Vec<_>>();
    let launches = LaunchError::reasons().collect::<Vec<_>>();
    for (title, about, reasons) in [
        (
            "Reasons of pending pods",
            "Why a pool can't take a pod, in events of the pod, in conditions of the TenantPool and in `croft simulate -o json`. \
             `croft explain reason NAME` has the remedy.",
            pending,
        ),
        ("Reasons of failed launches", "In the condition Launched and in events of NodeClaims.", launches),
    ] {
        writeln!(out, "\n## {title}\n\n{about}\n\n| reason | meaning |\n|---|---|")?;
        for (name, description) in reasons {
            writeln!(out, "| `{name}` | {} |", one_line(description))?;
        }
    }
    Ok(out)
}

fn keys() -> anyhow::Result<String> {
    let mut out = String::from(
        "# Labels, annotations, taints and finalizers\n\nWhat Croft reads and writes on objects.\n\n\
         | key | what | on | written by | meaning |\n|---|---|---|---|---|\n",
    );
    let tables = [
        croft_policy::definitions::KEYS,
        croft_policy::definitions::parameter::KEYS,
        croft_api::definitions::KEYS,
        controller::keys::KEYS,
        webhook::KEYS,
    ];
    let mut all: BTreeMap<(&str, &str), &Key> = BTreeMap::new();
    for key in tables.into_iter().flatten() {
        let twice = all.insert((key.name, key.kind.as_str()), key);
        anyhow::ensure!(twice.is_none(), "the {} {} is defined twice", key.kind.as_str(), key.name);
    }
    for ((name, kind), key) in all {
        writeln!(
            out,
            "| `{name}` | {kind} | {} | {} | {} |",
            key.on,
            key.written_by,
            one_line(key.description)
        )?;
    }
    Ok(out)
}

fn admission_rules() -> anyhow::Result<String> {
    let mut out = String::from(
        "# Admission rules\n\nThe rule that decided a request is in the audit annotation `rule` of Croft's webhooks, and in the \
         output of `croft admit`.\n\n| rule | meaning |\n|---|---|\n",
    );
    for rule in croft_policy::definitions::Rule::ALL {
        writeln!(out, "| `{rule}` | {} |", one_line(rule.description()))?;
    }
    writeln!(
        out,
        "\n## Violations\n\nWhat `croft audit` and the metric `croft_violations` report.\n\n| rule | meaning |\n|---|---|"
    )?;
    for violation in croft_policy::definitions::Violation::ALL {
        writeln!(out, "| `{violation}` | {} |", one_line(violation.description()))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use croft_page::model::facts::is_healthy;

    use super::*;

    /// A new condition type fails here until somebody has said what its statuses mean; the page shows what is wrong in another colour.
    #[test]
    fn page_knows_of_every_condition_type_which_status_is_healthy() {
        let all = || croft_api::condition::CONDITIONS.iter().chain(controller::conditions::TYPES);
        let healthy = |status: &'static str| {
            let types = all().map(|one| one.name).filter(move |name| is_healthy(name, status));
            types.collect::<BTreeSet<_>>()
        };
        let while_false = [
            "CollectionStopped",
            "Consolidatable",
            "DeletionBlocked",
            "DisruptionPaused",
            "DisruptionStopped",
            "Drifted",
            "Expired",
            "Interrupted",
            "LimitsReached",
            "PlanningFailed",
            "ScheduleInForce",
            "Unlimited",
            "ZonesClosed",
        ];
        let while_true = [
            "Accepted",
            "CapacityAvailable",
            "ClassReady",
            "Consolidatable",
            "DisruptionPaused",
            "Expired",
            "HeadroomReady",
            "Initialized",
            "InstanceHealthy",
            "InstanceTagged",
            "Isolated",
            "KubernetesFeatures",
            "Launched",
            "MutationInForce",
            "NamespaceCreation",
            "NodeRegistrationHealthy",
            "NodesManaged",
            "ObjectsKept",
            "Ready",
            "Registered",
            "ReplicasReady",
            "RequirementsValid",
            "ScheduleInForce",
            "SpecValid",
        ];
        assert_eq!(healthy("True"), BTreeSet::from(while_true));
        assert_eq!(healthy("False"), BTreeSet::from(while_false));
    }
}
