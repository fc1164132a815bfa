//! Loads of a lab: `city`, a day of 20 tenants at 60 times speed. A task beside the keeper writes Deployments' replicas and
//! interrupts spot instances; Croft does the rest.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use clap::ValueEnum;
use croft_testkit::{ControlPlane, CroftOptions, Part, http};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

/// Seconds of the played day in a second.
const SPEED: u64 = 60;
/// Between two writes of replicas.
const STEP: Duration = Duration::from_secs(5);
/// The time of the day at which it begins, in minutes.
const BEGIN_MINUTE: u64 = 6 * 60;
const DAY_MINUTES: u64 = 24 * 60;
/// Steps between two interruptions of a spot instance.
const INTERRUPTION_STEPS: u64 = 18;
/// The queue of interruptions in the simulated cloud.
const QUEUE: &str = "--interruption-queue=croft";

/// The tenants of the city.
const TENANTS: [&str; 20] = [
    "airport",
    "archive",
    "bakery",
    "bank",
    "bridge",
    "cinema",
    "court",
    "ferry",
    "harbour",
    "hospital",
    "library",
    "market",
    "museum",
    "newsroom",
    "observatory",
    "police",
    "school",
    "theatre",
    "tram",
    "waterworks",
];

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Load {
    /// A day of 20 tenants at 60 times speed
    City,
}

/// The hours in which a workload is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rhythm {
    Office,
    Evening,
    Night,
    Steady,
}

impl Rhythm {
    /// Percent of the most replicas at each full hour.
    const fn hours(self) -> [u64; 24] {
        match self {
            Self::Office => {
                [5, 5, 5, 5, 5, 5, 10, 30, 70, 100, 100, 95, 80, 95, 100, 100, 95, 70, 30, 15, 10, 5, 5, 5]
            }
            Self::Evening => [
                25, 15, 10, 10, 10, 15, 25, 35, 40, 40, 40, 45, 50, 50, 50, 50, 55, 65, 80, 95, 100, 90, 65,
                40,
            ],
            Self::Night => [0, 60, 100, 100, 80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Self::Steady => [100; 24],
        }
    }

    /// The replicas at a minute of the day, of `most`: between full hours they change evenly.
    fn replicas(self, most: u64, minute: u64) -> u64 {
        let at = |hour: u64| {
            self.hours().into_iter().cycle().nth(usize::try_from(hour % 24).unwrap_or(0)).unwrap_or(0)
        };
        let (hour, within) = (minute / 60, minute % 60);
        let share = at(hour) * (60 - within) + at(hour + 1) * within;
        (share * most).div_ceil(60 * 100)
    }
}

/// A Deployment that each tenant has.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    rhythm: Rhythm,
    /// Replicas of the largest tenants at their busiest, less one.
    most: u64,
    cpu_millis: u64,
    memory_mib: u64,
}

const WORKLOADS: [Workload; 4] = [
    Workload { name: "web", rhythm: Rhythm::Office, most: 8, cpu_millis: 500, memory_mib: 512 },
    Workload { name: "tickets", rhythm: Rhythm::Evening, most: 6, cpu_millis: 750, memory_mib: 1_024 },
    Workload { name: "reports", rhythm: Rhythm::Night, most: 5, cpu_millis: 1_500, memory_mib: 2_048 },
    Workload { name: "database", rhythm: Rhythm::Steady, most: 2, cpu_millis: 1_000, memory_mib: 4_096 },
];

/// The replicas of a tenant's Deployment. Tenants are of different sizes, and of different habits by some minutes.
fn wanted(tenant: usize, workload: Workload, minute: u64) -> u64 {
    let tenant = u64::try_from(tenant).unwrap_or_default();
    let most = 1 + workload.most * (1 + tenant % 4) / 4;
    workload.rhythm.replicas(most, (minute + 11 * tenant) % DAY_MINUTES)
}

fn deployment(namespace: &str, name: &str, replicas: u64, cpu: u64, memory: u64) -> Value {
    let requests = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 2,
                "containers": [{"name": name, "image": "registry.example/app:1", "resources": {"requests": requests}}]},
        }},
    })
}

/// Everything that the city declares, at the beginning of its day.
fn objects() -> Vec<Value> {
    let croft = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "croft.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let selector = json!([{"tags": {"croft.dev/discovery": "croft"}}]);
    let mut objects = vec![croft(
        "EC2NodeClass",
        "default",
        json!({"role": "croft-node", "amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector}),
    )];
    for (at, tenant) in TENANTS.into_iter().enumerate() {
        let capacity = if at % 3 == 0 { json!(["on-demand", "spot"]) } else { json!(["on-demand"]) };
        objects.extend([
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}}),
            croft("TenantPool", tenant, json!({
                "limits": {"nodes": 12},
                "disruption": {"consolidateAfter": "20s"},
                "template": {"spec": {"nodeClassRef": {"name": "default"}, "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity},
                    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
                    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
                ]}},
            })),
            croft("Tenant", tenant, json!({"namespaces": [tenant], "pools": [tenant]})),
        ]);
        for workload in WORKLOADS {
            let replicas = wanted(at, workload, BEGIN_MINUTE);
            let Workload { name, cpu_millis, memory_mib, .. } = workload;
            objects.push(deployment(tenant, name, replicas, cpu_millis, memory_mib));
        }
    }
    // A pod that fits no instance type, for its reasons.
    objects.extend(TENANTS.first().map(|tenant| deployment(tenant, "simulation", 1, 700_000, 1_024)));
    objects
}

/// A load that is played. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Playing(JoinHandle<()>);

impl Drop for Playing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Load {
    /// The options of a Croft that is given this load.
    pub(super) fn options(self, options: CroftOptions) -> CroftOptions {
        match self {
            Self::City => options.flag(Part::Controller, QUEUE),
        }
    }

    /// Declares the tenants, and plays from then on.
    pub(super) async fn start(self, plane: &ControlPlane, cloud: SocketAddr) -> anyhow::Result<Playing> {
        let Self::City = self;
        let documents: Vec<String> = objects().iter().map(Value::to_string).collect();
        plane.apply(&documents.join("\n---\n")).await.context("failed to declare the city")?;
        let client = plane.admin().await?;
        Ok(Playing(tokio::spawn(async move { play(&client, cloud).await })))
    }
}

/// Plays for ever. A write that fails is made again in the next step.
async fn play(client: &Client, cloud: SocketAddr) {
    let begin = Instant::now();
    let mut written: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for step in 1.. {
        tokio::time::sleep_until(begin + STEP * step).await;
        let minute = BEGIN_MINUTE + begin.elapsed().as_secs() * SPEED / 60;
        for (at, tenant) in TENANTS.into_iter().enumerate() {
            let api: Api<Deployment> = Api::namespaced(client.clone(), tenant);
            for workload in WORKLOADS {
                let replicas = wanted(at, workload, minute % DAY_MINUTES);
                let key = (at, workload.name);
                if written.get(&key) == Some(&replicas) {
                    continue;
                }
                let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                if api.patch_scale(workload.name, &PatchParams::default(), &scale).await.is_ok() {
                    written.insert(key, replicas);
                }
            }
        }
        if u64::from(step) % INTERRUPTION_STEPS == 0 {
            // Without an answer nothing is interrupted this time.
            let _ = interrupt(cloud).await;
        }
    }
}

/// Announces the end of the first running spot instance.
async fn interrupt(cloud: SocketAddr) -> anyhow::Result<()> {
    let state: Value = serde_json::from_str(&http::get(cloud, "/_control/state").await?.body)?;
    let instances = state.get("instances").and_then(Value::as_array).into_iter().flatten();
    let text = |instance: &Value, field: &str| {
        instance.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut spot =
        instances.filter(|one| text(one, "state") == "running" && text(one, "capacityType") == "spot");
    if let Some(instance) = spot.next().map(|one| text(one, "id")) {
        let news = json!({"do": "interrupt", "instance": instance, "news": "spot-warning"});
        http::post(cloud, "/_control", &news.to_string()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_change_evenly_between_full_hours() {
        let at = |minute| Rhythm::Office.replicas(100, minute);
        assert_eq!((at(8 * 60), at(8 * 60 + 30), at(9 * 60)), (70, 85, 100));
        assert_eq!(Rhythm::Night.replicas(100, 23 * 60 + 30), 0);
        assert_eq!(Rhythm::Night.replicas(100, 30), 30, "from midnight to one");
    }

    #[test]
    fn the_city_is_busier_by_day_than_by_night_and_fits_its_pools() {
        let pods = |minute| -> u64 {
            (0..TENANTS.len()).flat_map(|tenant| WORKLOADS.map(|one| wanted(tenant, one, minute))).sum()
        };
        let (day, night) = (pods(11 * 60), pods(5 * 60));
        assert!(day > 3 * night / 2 && (100..400).contains(&day), "{day} by day, {night} by night");
    }
}
