//! Operations of an ordinary day, under a stream of attacks.
//!
//! A case performs one operation on a running arena while [`attacks`] go on, and compares the objects outside tenants
//! before and after it. `make day2` runs every case, `tests/tests/install/day2/reapply.rs` the short ones and
//! those of an installation by Helm.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use croft_api::Tenant;
use croft_policy::{Mutation, policies};
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options, Part,
    croft::RELEASE,
    wait::{Seen, until},
};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    apps::v1::DaemonSet,
    core::v1::{Namespace, Pod},
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::{
    arena::{SOON, create, in_mode, kept_arena_of, pod, settings},
    attacks::{self, DISTURBED, LOST, Stream, Tally},
    manifests::{daemon_set, joined, tenant},
    policy_outage::{self, TEN_MINUTES},
    releases::Releases,
};

/// Attempts before and after the operation.
const ATTEMPTS: u64 = 300;
/// The namespace of an installation by Helm.
const HELM_NAMESPACE: &str = "platform";
/// Values that differ in every object between two revisions of the release.
const PREVIOUS: &str = "--set=labels.revision=previous";
const CURRENT: &str = "labels.revision=current";
/// Time for a server to end.
const GRACE: Duration = Duration::from_secs(20);

/// An operation on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `kubectl apply`.
    ClientSideApply,
    /// `kubectl apply --server-side --force-conflicts`.
    ServerSideApply,
    /// `kubectl apply` of the previous commit's manifests, and then of the present ones.
    PreviousManifests,
    /// The API server is stopped and started.
    RestartApiServer,
    /// The control plane comes back with the data of a backup, older than a tenant whose pool has a key of its own. Croft's
    /// processes go on.
    RestoreBackup,
    /// The CRDs are deleted, and the API server is stopped and started.
    RestartWithoutCrds,
    /// `kubectl replace` of the policies, with the same text.
    ReplacePolicies,
    /// `kubectl replace` of the webhook configurations, which empties them: the policies still enforce.
    ReplaceWebhooks,
    /// In Policy mode, Croft's processes are killed for ten minutes while 500 pods of tenants are created: all are pinned and
    /// started.
    PolicyModeOutage,
    /// Each policy on pods and its binding are deleted and created again: the webhooks still enforce.
    RecreatePodPolicies,
    /// `helm upgrade` from the previous commit's charts, where the charts are installed.
    HelmUpgrade,
    /// `helm rollback`, likewise.
    HelmRollback,
}

impl Case {
    /// The cases that take seconds.
    pub const SHORT: [Self; 3] = [Self::ClientSideApply, Self::ServerSideApply, Self::RestartApiServer];
    /// All cases. The one that deletes Tenants is last.
    pub const ALL: [Self; 10] = [
        Self::ClientSideApply,
        Self::ServerSideApply,
        Self::PreviousManifests,
        Self::ReplacePolicies,
        Self::ReplaceWebhooks,
        Self::RecreatePodPolicies,
        Self::RestartApiServer,
        Self::PolicyModeOutage,
        Self::RestoreBackup,
        Self::RestartWithoutCrds,
    ];
    /// The cases of an installation by Helm.
    pub const HELM: [Self; 3] = [Self::HelmUpgrade, Self::HelmRollback, Self::HelmUpgrade];
}

/// A running arena.
pub struct Day2 {
    croft: Croft,
    plane: ControlPlane,
    releases: Releases,
    by_helm: bool,
    figures: Vec<String>,
}

impl Day2 {
    /// Starts an arena, with a pod and a DaemonSet outside tenants.
    ///
    /// # Errors
    /// If a process doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        let options = CroftOptions::find()?;
        let releases = Releases::find(&options.manifests)?;
        Self::start_with(options, releases, false).await
    }

    /// Starts an arena where the previous commit's charts are installed in another namespace than the manifests', to be
    /// upgraded to those of the checkout.
    ///
    /// # Errors
    /// If a process doesn't start.
    pub async fn start_by_helm() -> anyhow::Result<Self> {
        let options = CroftOptions::find()?;
        let releases = Releases::find(&options.manifests)?;
        let options = options.by_helm(&releases.previous_charts(), HELM_NAMESPACE, &[PREVIOUS]);
        Self::start_with(options, releases, true).await
    }

    async fn start_with(options: CroftOptions, releases: Releases, by_helm: bool) -> anyhow::Result<Self> {
        let (plane, croft) = kept_arena_of(Options::default(), options).await?;
        let admin = plane.admin().await?;
        let everywhere = json!({"tolerations": [{"operator": "Exists"}]});
        for object in [pod("no-tenant", "plain", json!({})), daemon_set("no-tenant", "agent", everywhere)] {
            let answer = create(&admin, &object, false).await?;
            anyhow::ensure!(answer.is_done(), "{}", answer.sentence());
        }
        let day = Self { croft, plane, releases, by_helm, figures: Vec::new() };
        day.ready(by_helm).await?;
        Ok(day)
    }

    /// Performs `case` under attack.
    ///
    /// # Errors
    /// If it fails, or Croft doesn't settle after it.
    pub async fn run(&mut self, case: Case) -> anyhow::Result<Tally> {
        let before = self.outside().await?;
        let mut attacks = attacks::placement(&self.plane).await?;
        attacks.extend(attacks::kubelets(&self.plane).await?);
        // At full rate, ten minutes of attacks would measure the computer.
        let pause = if case == Case::PolicyModeOutage { attacks::SLOW } else { attacks::PAUSE };
        let stream = Stream::start_paced(attacks, pause);
        reach(&stream, ATTEMPTS).await?;
        let lost = self.act(case).await.with_context(|| format!("failed in the case {case:?}"))?;
        let done = stream.answered();
        reach(&stream, done + ATTEMPTS).await?;
        if case != Case::RestartWithoutCrds {
            self.ready(case == Case::HelmRollback).await?;
        }
        let mut tally = stream.stop().await;
        let after = self.outside().await?;
        // The template of a DaemonSet that tolerates everything follows the pools' keys, and this case brings and takes one.
        let follows = |name: &str| case == Case::RestoreBackup && name.contains("no-tenant/agent-");
        let before = before.iter().filter(|(name, _)| !follows(name));
        let changed = before.filter_map(|(name, object)| match after.get(name) {
            Some(now) if now == object => None,
            Some(now) => Some(format!("{name}: {now} instead of {object}")),
            None => Some(format!("{name} is gone")),
        });
        tally.count(DISTURBED, changed.collect());
        tally.count(LOST, lost);
        Ok(tally)
    }

    /// Names of the objects that a server-side dry run of the installed files would change.
    ///
    /// # Errors
    /// If kubectl fails.
    pub async fn differences(&self) -> anyhow::Result<Vec<String>> {
        let rendered = if self.by_helm {
            let (croft, namespace) =
                (self.releases.chart("croft"), format!("--namespace={}", self.croft.namespace()));
            let arguments = ["template", RELEASE, &croft, "--set", CURRENT, &namespace];
            let mut text = self.plane.helm(arguments).await?;
            text.push_str(&self.plane.helm(["template", "crds", &self.releases.chart("croft-crds")]).await?);
            text
        } else {
            self.plane.kubectl(["kustomize", &self.folder("install")?]).await?
        };
        let flags = ["-f", "-", "--server-side", "--force-conflicts", "--field-manager=kubectl"];
        let names = |text: &str| -> BTreeMap<String, String> {
            let list: Value = serde_json::from_str(text).unwrap_or_default();
            let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            items.into_iter().map(described).collect()
        };
        let read = ["get", "-f", "-", "-o", "json"];
        let dry = [&["apply", "--dry-run=server", "-o", "json"], &flags[..]].concat();
        let mut there = names(&self.plane.kubectl_with(read, &rendered).await?);
        let planned = loop {
            let planned = names(&self.plane.kubectl_with(&dry, &rendered).await?);
            let after = names(&self.plane.kubectl_with(read, &rendered).await?);
            // Croft writes its record at any time: what it writes between the reads is no difference.
            if std::mem::replace(&mut there, after) == there {
                break planned;
            }
        };
        anyhow::ensure!(!planned.is_empty(), "the dry run names no object");
        let differ = planned.iter().filter(|(name, object)| there.get(*name) != Some(*object));
        Ok(differ
            .map(|(name, object)| format!("{name}: {object} instead of {:?}", there.get(name)))
            .collect())
    }

    /// Performs the operation. Returns the pods of tenants that weren't started as they should.
    async fn act(&mut self, case: Case) -> anyhow::Result<Vec<String>> {
        let install = self.folder("install")?;
        match case {
            Case::ClientSideApply => {
                self.plane.kubectl(["apply", "-k", &install]).await?;
            }
            Case::ServerSideApply => {
                self.plane.kubectl(["apply", "--server-side", "--force-conflicts", "-k", &install]).await?;
            }
            Case::PreviousManifests => {
                self.plane.kubectl(["apply", "-k", &self.releases.previous_manifests()]).await?;
                self.plane.kubectl(["apply", "-k", &install]).await?;
            }
            Case::RestartApiServer => self.restart().await?,
            Case::RestoreBackup => self.restore_backup().await?,
            Case::RestartWithoutCrds => {
                self.plane.kubectl(["delete", "--wait=false", "-k", &self.folder("crds")?]).await?;
                self.restart().await?;
            }
            Case::ReplacePolicies => {
                self.plane.kubectl(["replace", "-f", &self.folder("install/policies.yaml")?]).await?;
            }
            Case::ReplaceWebhooks => {
                self.plane.kubectl(["replace", "-f", &self.folder("install/webhooks.yaml")?]).await?;
            }
            Case::PolicyModeOutage => return self.policy_mode_outage().await,
            Case::HelmUpgrade => self.helm_upgrade().await?,
            Case::HelmRollback => {
                let namespace = format!("--namespace={}", self.croft.namespace());
                self.plane.helm(["rollback", RELEASE, "1", &namespace]).await?;
            }
            Case::RecreatePodPolicies => {
                let policies = policies::documents(self.croft.namespace());
                let name = |d: &Value| d.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
                let evaluated_twice =
                    |d: &&Value| name(d).is_some_and(|n| n.starts_with("croft-pod-placement"));
                let documents: Vec<String> =
                    policies.iter().filter(evaluated_twice).map(Value::to_string).collect();
                for document in documents {
                    self.plane.kubectl_with(["delete", "-f", "-"], &document).await?;
                    self.plane.kubectl_with(["create", "-f", "-"], &document).await?;
                }
            }
        }
        Ok(Vec::new())
    }

    /// Switches to Policy mode, creates pods of tenants while no process runs, and switches back.
    async fn policy_mode_outage(&mut self) -> anyhow::Result<Vec<String>> {
        let admin = self.plane.admin().await?;
        self.plane.apply(&settings(Mutation::Policy)).await?;
        in_mode(&admin, Mutation::Policy).await?;
        self.croft.kill(Part::Webhook)?;
        self.croft.kill(Part::Controller)?;
        let started = policy_outage::create_pods(&self.plane, TEN_MINUTES).await?;
        self.figures.push(started.line());
        self.croft.resume(&self.plane, Part::Webhook).await?;
        self.croft.resume(&self.plane, Part::Controller).await?;
        self.plane.apply(&settings(Mutation::Webhook)).await?;
        in_mode(&admin, Mutation::Webhook).await?;
        policy_outage::delete_pods(&self.plane).await?;
        Ok(started.failures)
    }

    /// Figures of cases since the last call, one line each.
    pub fn take_figures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.figures)
    }

    /// Upgrades both charts to those of the checkout.
    async fn helm_upgrade(&self) -> anyhow::Result<()> {
        let namespace = format!("--namespace={}", self.croft.namespace());
        let (name, crds) = (format!("{RELEASE}-crds"), self.releases.chart("croft-crds"));
        self.plane.helm(["upgrade", &name, &crds, &namespace]).await?;
        self.plane
            .helm(["upgrade", RELEASE, &self.releases.chart("croft"), "--set", CURRENT, &namespace])
            .await?;
        Ok(())
    }

    /// Restores a backup that lacks a tenant, and declares the tenant again: its pool's key must be enforced again, although
    /// the processes have seen it enforced.
    async fn restore_backup(&mut self) -> anyhow::Result<()> {
        let spec = json!({"key": "example.org/late", "provisioner": "None"});
        let late = joined(&tenant("tenant-late", "late", &spec));
        let backup = self.plane.back_up().await?;
        self.plane.apply(&late).await?;
        self.keeps_out("example.org/late").await.context("before the restoration")?;
        self.plane.restore(&backup).await?;
        self.plane.apply(&late).await?;
        self.keeps_out("example.org/late").await.context("after the restoration")?;
        self.plane
            .kubectl(["delete", "tenant/tenant-late", "tenantpool/late", "namespace/tenant-late"])
            .await?;
        Ok(())
    }

    /// Waits until every Tenant is Ready and a pod outside tenants may not tolerate the taint `key`.
    async fn keeps_out(&self, key: &str) -> anyhow::Result<()> {
        self.ready(false).await?;
        let admin = self.plane.admin().await?;
        let onto_it =
            json!({"nodeSelector": {key: "late"}, "tolerations": [{"key": key, "operator": "Exists"}]});
        let tolerant = pod("no-tenant", "tolerant", onto_it);
        let answer = create(&admin, &tolerant, true).await?;
        anyhow::ensure!(
            !answer.is_done(),
            "a pod outside tenants may go onto nodes with {key} although its tenant is Ready"
        );
        Ok(())
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        self.plane.stop_component(Component::ApiServer, GRACE).await?;
        self.plane.resume(Component::ApiServer).await?;
        Ok(())
    }

    /// Waits until every Tenant is Ready and the webhook is registered: of the two pieces that evaluate a pod, each case
    /// takes one away. The charts of the previous commit may lack a policy that the processes look for, so that with them
    /// `PoliciesMissing` will do: the attacks show what the others refuse.
    async fn ready(&self, with_previous_charts: bool) -> anyhow::Result<()> {
        let registered: Api<MutatingWebhookConfiguration> = Api::all(self.plane.admin().await?);
        until("the webhook is registered", SOON, async || {
            let hooks = registered.get("croft-webhook").await?.webhooks.unwrap_or_default();
            Ok::<_, kube::Error>(Seen::from_option((!hooks.is_empty()).then_some(()), "no webhooks"))
        })
        .await?;
        let tenants: Api<Tenant> = Api::all(self.plane.admin().await?);
        until("every tenant ready", SOON, async || {
            let list = tenants.list(&ListParams::default()).await?.items;
            let conditions = |t: &Tenant| t.status.clone().map(|s| s.conditions).unwrap_or_default();
            let will_do = |reason: &str| with_previous_charts && reason == "PoliciesMissing";
            let ready = |t: &Tenant| {
                let mut found = conditions(t).into_iter().filter(|c| c.type_ == "Ready");
                found.any(|c| c.status == "True" || will_do(&c.reason))
            };
            let done = !list.is_empty() && list.iter().all(ready);
            let said: Vec<_> =
                list.iter().map(|t| format!("{}: {:?}", t.name_any(), conditions(t))).collect();
            Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), said.join("; ")))
        })
        .await?;
        Ok(())
    }

    /// Labels, annotations and spec of each object outside tenants, by name.
    async fn outside(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let admin = self.plane.admin().await?;
        let all = ListParams::default();
        let mut objects = BTreeMap::new();
        let own = self.croft.namespace();
        let ours = |namespace: Option<&str>| namespace.is_some_and(|n| n.starts_with("tenant-") || n == own);
        let namespaces = Api::<Namespace>::all(admin.clone()).list(&all).await?.items;
        for object in namespaces.iter().filter(|n| !ours(Some(&n.name_any()))) {
            let (name, text) = described(json!(object));
            objects.insert(format!("Namespace {name}"), text);
        }
        for object in Api::<DaemonSet>::all(admin.clone()).list(&all).await?.items {
            if !ours(object.metadata.namespace.as_deref()) {
                let (name, text) = described(json!(object));
                objects.insert(format!("DaemonSet {name}"), text);
            }
        }
        for object in Api::<Pod>::all(admin).list(&all).await?.items {
            // A pending pod may be bound meanwhile.
            let bound = object.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            if bound && !ours(object.metadata.namespace.as_deref()) {
                let (name, text) = described(json!(object));
                objects.insert(format!("Pod {name}"), text);
            }
        }
        Ok(objects)
    }

    fn folder(&self, below: &str) -> anyhow::Result<String> {
        let path = self.croft.manifests().join(below);
        path.to_str().map(str::to_owned).context("the path of the manifests isn't text")
    }
}

/// Kind, namespace and name, and the fields that users and controllers write.
fn described(mut object: Value) -> (String, String) {
    let text = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let name = format!(
        "{} {}/{}",
        text(&object, "/kind"),
        text(&object, "/metadata/namespace"),
        text(&object, "/metadata/name")
    );
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| matches!(key.as_str(), "labels" | "annotations" | "finalizers"));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            annotations.remove("deprecated.daemonset.template.generation");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    (name, object.to_string())
}

async fn reach(stream: &Stream, attempts: u64) -> anyhow::Result<()> {
    until("enough attacks", SOON, async || {
        let answered = stream.answered();
        Ok::<_, kube::Error>(Seen::from_option((answered >= attempts).then_some(()), answered))
    })
    .await?;
    Ok(())
}
