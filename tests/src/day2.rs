//! Operations of an ordinary day, under a stream of attacks.
//!
//! A case performs one operation on a running arena while [`attacks`] go on, and compares the objects outside tenants
//! before and after it. `make day2` runs every case, `tests/tests/day2_reapply.rs` the short ones.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use croft_api::Tenant;
use croft_policy::policies;
use croft_testkit::{
    Component, ControlPlane, Croft, Options,
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
    arena::{SOON, create, kept_arena, pod},
    attacks::{self, DISTURBED, Stream, Tally},
};

/// Attempts before and after the operation.
const ATTEMPTS: u64 = 300;
/// Time for a server to end.
const GRACE: Duration = Duration::from_secs(20);

/// An operation on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `kubectl apply`.
    ClientSideApply,
    /// `kubectl apply --server-side --force-conflicts`.
    ServerSideApply,
    /// The API server is stopped and started.
    RestartApiServer,
    /// The CRDs are deleted, and the API server is stopped and started.
    RestartWithoutCrds,
    /// `kubectl replace` of the policies, with the same text.
    ReplacePolicies,
    /// `kubectl replace` of the webhook configurations, which empties them: the policies still enforce.
    ReplaceWebhooks,
    /// Each policy on pods and its binding are deleted and created again: the webhooks still enforce.
    RecreatePodPolicies,
}

impl Case {
    /// The cases that take seconds.
    pub const SHORT: [Self; 3] = [Self::ClientSideApply, Self::ServerSideApply, Self::RestartApiServer];
    /// All cases. The one that deletes Tenants is last.
    pub const ALL: [Self; 7] = [
        Self::ClientSideApply,
        Self::ServerSideApply,
        Self::ReplacePolicies,
        Self::ReplaceWebhooks,
        Self::RecreatePodPolicies,
        Self::RestartApiServer,
        Self::RestartWithoutCrds,
    ];
}

/// A running arena.
pub struct Day2 {
    croft: Croft,
    plane: ControlPlane,
}

impl Day2 {
    /// Starts an arena, with a pod and a DaemonSet outside tenants.
    ///
    /// # Errors
    /// If a process doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        let (plane, croft) = kept_arena(Options::default()).await?;
        let admin = plane.admin().await?;
        let everywhere = json!({"tolerations": [{"operator": "Exists"}]});
        for object in [pod("no-tenant", "plain", json!({})), agent(everywhere)] {
            let answer = create(&admin, &object, false).await?;
            anyhow::ensure!(answer.is_done(), "{}", answer.sentence());
        }
        let day = Self { croft, plane };
        day.ready().await?;
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
        let stream = Stream::start(attacks);
        reach(&stream, ATTEMPTS).await?;
        self.act(case).await.with_context(|| format!("failed in the case {case:?}"))?;
        let done = stream.answered();
        reach(&stream, done + ATTEMPTS).await?;
        if case != Case::RestartWithoutCrds {
            self.ready().await?;
        }
        let mut tally = stream.stop().await;
        let after = self.outside().await?;
        let changed = before.iter().filter(|(name, object)| after.get(*name) != Some(*object));
        tally.count(DISTURBED, changed.map(|(name, _)| name.clone()).collect());
        Ok(tally)
    }

    /// Names of the objects that a server-side dry run of the installed files would change.
    ///
    /// # Errors
    /// If kubectl fails.
    pub async fn differences(&self) -> anyhow::Result<Vec<String>> {
        let folder = self.folder("install")?;
        let flags = ["-k", &folder, "--server-side", "--force-conflicts", "--field-manager=kubectl"];
        let names = |text: &str| -> BTreeMap<String, String> {
            let list: Value = serde_json::from_str(text).unwrap_or_default();
            let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            items.into_iter().map(described).collect()
        };
        let planned =
            self.plane.kubectl([&["apply", "--dry-run=server", "-o", "json"], &flags[..]].concat()).await?;
        let there = self.plane.kubectl(["get", "-k", &folder, "-o", "json"]).await?;
        let (planned, there) = (names(&planned), names(&there));
        anyhow::ensure!(!planned.is_empty(), "the dry run names no object");
        let differ = planned.iter().filter(|(name, object)| there.get(*name) != Some(*object));
        Ok(differ
            .map(|(name, object)| format!("{name}: {object} instead of {:?}", there.get(name)))
            .collect())
    }

    async fn act(&mut self, case: Case) -> anyhow::Result<()> {
        let install = self.folder("install")?;
        match case {
            Case::ClientSideApply => {
                self.plane.kubectl(["apply", "-k", &install]).await?;
            }
            Case::ServerSideApply => {
                self.plane.kubectl(["apply", "--server-side", "--force-conflicts", "-k", &install]).await?;
            }
            Case::RestartApiServer => self.restart().await?,
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
            Case::RecreatePodPolicies => {
                let policies = policies::documents(croft_testkit::croft::NAMESPACE);
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
        Ok(())
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        self.plane.stop_component(Component::ApiServer, GRACE).await?;
        self.plane.resume(Component::ApiServer).await?;
        Ok(())
    }

    /// Waits until every Tenant is Ready and the webhook is registered: of the two pieces that judge a pod, each case
    /// takes one away.
    async fn ready(&self) -> anyhow::Result<()> {
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
            let ready = |t: &Tenant| conditions(t).iter().any(|c| c.type_ == "Ready" && c.status == "True");
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
        let ours = |namespace: Option<&str>| {
            namespace.is_some_and(|n| n.starts_with("tenant-") || n == croft_testkit::croft::NAMESPACE)
        };
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

fn agent(spec: Value) -> Value {
    let mut template = json!({"containers": [{"name": "c", "image": "c"}]});
    if let (Some(into), Value::Object(from)) = (template.as_object_mut(), spec) {
        into.extend(from);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "no-tenant"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": template}},
    })
}

async fn reach(stream: &Stream, attempts: u64) -> anyhow::Result<()> {
    until("enough attacks", SOON, async || {
        let answered = stream.answered();
        Ok::<_, kube::Error>(Seen::from_option((answered >= attempts).then_some(()), answered))
    })
    .await?;
    Ok(())
}
