//! The real API server, filled as far as a measurement needs it, and the webhook's process.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use croft_policy::{
    Config, Index, Mutation, Pool, Provisioner, Tenant, Tenants,
    definitions::{parameter, webhook},
    policies::{
        self,
        parameters::{Creation, IN_FORCE},
    },
    taint::Effect,
};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options, Process, Recipe, http, ports, wait,
};
use croft_webhook::registration::scope::NOT_BY_POLICY;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding,
    },
    core::v1::Namespace,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// Objects that are created at once.
const AT_ONCE: usize = 48;
const SOON: Duration = Duration::from_secs(120);
/// Namespaces of the latency measurement: exempt, exempt but with the in-process policy, and a tenant's.
pub(crate) const FREE: &str = "bench-free";
/// A namespace that no policy of Croft matches: it is exempt by itself.
pub(crate) const UNMATCHED: &str = "kube-public";
pub(crate) const BY_POLICY: &str = "bench-policy";
pub(crate) const BY_CROFT: &str = "tenant-a";
/// Further namespaces of the same tenant, in which policies are bound one by one.
pub(crate) const ALONE: [&str; 5] =
    ["bench-alone-0", "bench-alone-1", "bench-alone-2", "bench-alone-3", "bench-alone-4"];
/// The API server reads bindings every second.
const BINDINGS_ARE_READ: Duration = Duration::from_secs(3);

/// The allocator's settings in manifests/deploy/webhook.yaml.
pub(crate) const ALLOCATOR: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "65536"), ("MALLOC_TRIM_THRESHOLD_", "65536")];

/// The API server with Croft's manifests.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    tenants: usize,
}

/// A webhook that is ready.
pub(crate) struct Webhook {
    process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    /// Time from its start until it was ready.
    pub(crate) ready: Duration,
}

impl Webhook {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop(Duration::from_secs(30)).await?;
        Ok(())
    }
}

impl Cluster {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let options = Options::default()
            .without(Component::Scheduler)
            .without(Component::Kubelets)
            .without(Component::ControllerManager)
            .flag(Component::ApiServer, "--max-requests-inflight=2000")
            .flag(Component::ApiServer, "--max-mutating-requests-inflight=1000");
        let plane = ControlPlane::start(options).await?;
        Croft::install(&plane, CroftOptions::find()?).await?;
        let client = plane.admin().await?;
        let kubeconfig = plane.kubeconfig_for_service_account("croft-system", "croft-webhook").await?;
        let mut cluster = Self { plane, client, kubeconfig, tenants: 0 };
        cluster
            .put(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
                "spec": {"exemptNamespaces": [FREE, BY_POLICY]}
            }))
            .await?;
        for namespace in [FREE, UNMATCHED, BY_POLICY].into_iter().chain(namespaces_of_a()) {
            cluster
                .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
                .await?;
            let account = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}
            });
            cluster.put(account).await?;
        }
        cluster.put(pool("pool-a")).await?;
        cluster.put(tenant("a", &namespaces_of_a().collect::<Vec<_>>(), "pool-a")).await?;
        cluster.tenants(2).await?;
        for document in equivalent_policy() {
            cluster.put(document).await?;
        }
        Ok(cluster)
    }

    /// Starts the webhook and waits until it is ready. `nth` distinguishes its log from those of others.
    pub(crate) async fn webhook(&self, nth: u32) -> anyhow::Result<Webhook> {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (main, health) = (address(ports::free()?), address(ports::free()?));
        let name = format!("croft-webhook-{nth}");
        let recipe = Recipe::new(&name, env!("CARGO_BIN_EXE_croft-webhook"), self.plane.log(&name))
            .arguments([
                format!("--kubeconfig={}", self.kubeconfig.display()),
                format!("--listen={main}"),
                format!("--health-listen={health}"),
                format!("--url=https://{main}"),
                format!("--replica={name}"),
                "--drain=0".to_owned(),
            ]);
        let recipe = ALLOCATOR.iter().fold(recipe, |recipe, (name, value)| recipe.environment(name, value));
        let begun = SystemClock.monotonic();
        let mut process = self.plane.spawn(&recipe)?;
        let ready = loop {
            if http::get(health, "/readyz").await.is_ok_and(|answer| answer.status == 200) {
                break SystemClock.monotonic() - begun;
            }
            process.check()?;
            anyhow::ensure!(
                SystemClock.monotonic() - begun < SOON,
                "the webhook isn't ready:\n{}",
                process.tail()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let webhook = Webhook { address: main, pid: process.pid(), process, ready };
        self.until_scoped().await?;
        for namespace in namespaces_of_a().chain([BY_POLICY]) {
            self.until_pinned(namespace).await?;
        }
        Ok(webhook)
    }

    /// Waits until the webhook has written its scope: otherwise no kind would be without it.
    async fn until_scoped(&self) -> anyhow::Result<()> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        wait::until("the webhook to leave the exempt namespaces alone", SOON, || async {
            let hooks = api.get("croft-webhook").await?.webhooks.unwrap_or_default();
            let is_of_objects_inside = |hook: &MutatingWebhook| {
                let resources = hook.rules.iter().flatten().flat_map(|rule| rule.resources.iter().flatten());
                resources.into_iter().all(|resource| resource != "namespaces")
            };
            let asked: Vec<_> = hooks
                .into_iter()
                .filter(is_of_objects_inside)
                .filter(|hook| {
                    let terms =
                        hook.namespace_selector.iter().flat_map(|s| s.match_expressions.iter().flatten());
                    !terms.flat_map(|term| term.values.iter().flatten()).any(|name| name == FREE)
                })
                .map(|hook| hook.name)
                .collect();
            Ok::<_, kube::Error>(wait::Seen::from_option(
                asked.is_empty().then_some(()),
                format!("{asked:?}"),
            ))
        })
        .await?;
        Ok(())
    }

    /// Waits until pods of `namespace` are pinned; a refusal would make a kind look fast that does nothing.
    async fn until_pinned(&self, namespace: &str) -> anyhow::Result<()> {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.client.clone(), namespace);
        wait::until(&format!("pods of {namespace} to be pinned"), SOON, || async {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            let made = pods
                .create(&dry, &serde_json::from_value(pod("probe")).map_err(kube::Error::SerdeError)?)
                .await?;
            let pinned = made.spec.is_some_and(|spec| spec.node_selector.is_some());
            Ok::<_, kube::Error>(wait::Seen::from_option(pinned.then_some(()), "an unpinned pod"))
        })
        .await?;
        Ok(())
    }

    /// The authority that API servers trust.
    pub(crate) async fn bundle(&self) -> anyhow::Result<String> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let hooks = api.get("croft-webhook").await?.webhooks.unwrap_or_default();
        let bundle =
            hooks.into_iter().find_map(|hook| hook.client_config.ca_bundle).context("no caBundle")?;
        Ok(String::from_utf8(bundle.0)?)
    }

    /// Creates tenants, each with a namespace and a pool, until there are `wanted`.
    pub(crate) async fn tenants(&mut self, wanted: usize) -> anyhow::Result<()> {
        let objects = (self.tenants..wanted).flat_map(|number| {
            let name = format!("t{number}");
            [
                pool(&format!("pool-{name}")),
                tenant(&name, &[&format!("ns-{number}")], &format!("pool-{name}")),
            ]
        });
        self.put_all(objects.collect()).await?;
        self.tenants = self.tenants.max(wanted);
        Ok(())
    }

    /// Creates this many tenants, namespaces and nodes.
    pub(crate) async fn grow(
        &mut self,
        tenants: usize,
        namespaces: usize,
        nodes: usize,
    ) -> anyhow::Result<()> {
        self.tenants(tenants).await?;
        let namespace = |number| {
            let labels = json!({"team": format!("team-{}", number % 500), "stage": "production", "cost-centre": "4711"});
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": format!("ns-{number}"), "labels": labels, "annotations": {"owner": "someone@example.dev"}}
            })
        };
        self.put_all((0..namespaces).map(namespace).collect()).await?;
        self.put_all((0..nodes).map(|number| node(number, tenants)).collect()).await
    }

    /// Declarations of the tenants that exist, as the controller would read them.
    fn snapshot(&self) -> Tenants {
        let mut index = Index::offline();
        index.set_config(Config {
            exempt: [FREE, BY_POLICY].map(str::to_owned).to_vec(),
            ..Config::default()
        });
        let further = (0..self.tenants).map(|number| (format!("t{number}"), vec![format!("ns-{number}")]));
        let names = [("a".to_owned(), namespaces_of_a().map(str::to_owned).collect())];
        for (name, namespaces) in names.into_iter().chain(further) {
            let pool = format!("pool-{name}");
            index.upsert_pool(Pool {
                name: pool.clone(),
                created: None,
                key: "node-pool".to_owned(),
                value: pool.clone(),
                effects: [Effect::NoSchedule].into_iter().collect(),
                shared_with: Vec::new(),
                provisioner: Provisioner::None,
                template: croft_policy::NodeTemplate::default(),
                tenants: croft_policy::PoolTenants::default(),
            });
            index.upsert_tenant(Tenant { name, namespaces, pools: vec![pool], ..Tenant::default() });
        }
        index.snapshot()
    }

    /// Installs the generated policies, and writes what they read for `mode`. Waits until webhook and policies have it.
    pub(crate) async fn policies(&self, mode: Mutation) -> anyhow::Result<()> {
        self.plane.apply(&generated()).await?;
        let snapshot = self.snapshot();
        let rules = snapshot.declarations();
        let controller = self.plane.client_for(&rules.controller_user(), &["system:masters"]).await?;
        let api: Api<Namespace> = Api::all(controller);
        let parameters = policies::parameters(rules, true, mode, |_| Creation::Open);
        let probe =
            json!({"metadata": {"annotations": {parameter::PROBE: parameters.get(parameter::REVISION)}}});
        let parameters = json!({"metadata": {"annotations": parameters}});
        api.patch("croft-system", &PatchParams::default(), &Patch::Merge(parameters)).await?;
        for namespace in namespaces_of_a() {
            let owner = rules.owner(namespace, |_| None).and_then(|id| rules.tenant(id));
            let (labels, annotations) = policies::namespace_metadata(rules, namespace, owner);
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
            api.patch(namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        self.set_mode(mode).await?;
        // The API server compiles them some time later; a probe of the parameters is refused once it has.
        wait::until("the policies to be in force", SOON, || async {
            let dry = PatchParams { dry_run: true, ..PatchParams::default() };
            match api.patch("croft-system", &dry, &Patch::Merge(&probe)).await {
                Err(kube::Error::Api(status)) if status.message.contains(IN_FORCE) => Ok(wait::Seen::Yes(())),
                Ok(_) => Ok(wait::Seen::NotYet("the probe was let through".to_owned())),
                Err(error) => Err(error),
            }
        })
        .await?;
        self.until_pinned(BY_CROFT).await
    }

    /// Binds policies to one namespace each.
    pub(crate) async fn bind_apart(&self, places: &[(&str, &[String])]) -> anyhow::Result<()> {
        self.bind(places, |namespace| {
            json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}})
        })
        .await
    }

    /// Binds the same policies to every namespace again.
    pub(crate) async fn bind_everywhere(&self, places: &[(&str, &[String])]) -> anyhow::Result<()> {
        self.bind(places, |_| Value::Null).await
    }

    async fn bind(
        &self,
        places: &[(&str, &[String])],
        resources: impl Fn(&str) -> Value,
    ) -> anyhow::Result<()> {
        let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        for (namespace, policies) in places {
            let patch = json!({"spec": {"matchResources": resources(namespace)}});
            for policy in *policies {
                api.patch(policy, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            }
        }
        tokio::time::sleep(BINDINGS_ARE_READ).await;
        Ok(())
    }

    /// Deletes the policies. The webhook is asked about every pod before.
    pub(crate) async fn without_policies(&self) -> anyhow::Result<()> {
        self.set_mode(Mutation::Webhook).await?;
        self.plane.kubectl_with(["delete", "--ignore-not-found", "-f", "-"], &generated()).await?;
        Ok(())
    }

    /// Writes the mode into the settings, and waits until the webhook is registered for it.
    async fn set_mode(&self, mode: Mutation) -> anyhow::Result<()> {
        let wants_policy = mode == Mutation::Policy;
        let text = if wants_policy { "Policy" } else { "Webhook" };
        let patch = json!({"spec": {"admission": {"mutation": text}}}).to_string();
        self.plane.kubectl(["patch", "croftconfig", "default", "--type=merge", "-p", &patch]).await?;
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        wait::until("the webhook to be registered for the mode", SOON, || async {
            let hooks = api.get("croft-webhook").await?.webhooks.unwrap_or_default();
            let is_narrow = |hook: &MutatingWebhook| {
                hook.match_conditions.iter().flatten().any(|condition| condition.name == NOT_BY_POLICY)
            };
            let mut of_pods = hooks.iter().filter(|hook| hook.name != webhook::NAMESPACES);
            let done = !hooks.is_empty() && of_pods.all(|hook| is_narrow(hook) == wants_policy);
            Ok::<_, kube::Error>(wait::Seen::from_option(done.then_some(()), text))
        })
        .await?;
        Ok(())
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        Ok(self.plane.stop()?)
    }

    async fn put(&self, object: Value) -> anyhow::Result<()> {
        put(&self.client, object).await
    }

    async fn put_all(&self, objects: Vec<Value>) -> anyhow::Result<()> {
        stream::iter(objects.into_iter().map(|object| put(&self.client, object)))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
    }
}

async fn put(client: &Client, object: Value) -> anyhow::Result<()> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
    let plural = match kind.as_str() {
        "MutatingAdmissionPolicy" => "mutatingadmissionpolicies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &plural);
    let namespace = text("/metadata/namespace");
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    let body: DynamicObject = serde_json::from_value(object)?;
    match api.create(&PostParams::default(), &body).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(anyhow::Error::from(error).context(format!("failed to create {kind} {name}"))),
    }
}

/// The generated policies of both modes, as documents of one file.
fn generated() -> String {
    let mut documents = policies::documents("croft-system");
    documents.extend(policies::mutation::documents("croft-system"));
    let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
    documents.join("\n---\n")
}

/// The namespaces of tenant a.
fn namespaces_of_a() -> impl Iterator<Item = &'static str> {
    [BY_CROFT].into_iter().chain(ALONE)
}

/// A minimal pod.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "registry.example/app:1"}]}
    })
}

fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": name},
        "spec": {"key": "node-pool", "provisioner": "None"}
    })
}

fn tenant(name: &str, namespaces: &[&str], pool: &str) -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
        "spec": {"namespaces": namespaces, "pools": [pool]}
    })
}

/// A node with the labels that a cloud sets.
fn node(number: usize, tenants: usize) -> Value {
    let pool = format!("pool-t{}", number % tenants.max(1));
    let name = format!("ip-10-{}-{}.ec2.internal", number / 250, number % 250);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": format!("m5.{}xlarge", number % 5),
            "topology.kubernetes.io/region": "us-east-1", "topology.kubernetes.io/zone": format!("us-east-1{}", number % 3),
            "topology.ebs.csi.aws.com/zone": format!("us-east-1{}", number % 3), "karpenter.sh/capacity-type": "spot",
            "karpenter.k8s.aws/instance-family": "m5", "karpenter.k8s.aws/instance-cpu": "8",
            "karpenter.k8s.aws/instance-memory": "32768", "karpenter.k8s.aws/instance-category": "m",
            "node-pool": pool, "node-restriction.kubernetes.io/pool": pool}},
        "spec": {"taints": [{"key": "node-pool", "value": pool, "effect": "NoSchedule"}],
            "providerID": format!("aws:///us-east-1a/i-{number:017x}")},
        "status": {"images": (0..20).map(|image| json!({
            "names": [format!("registry.example/image-{image}@sha256:{image:064x}")], "sizeBytes": 100_000_000 + image}))
            .collect::<Vec<_>>()}
    })
}

/// Croft's mutation of a tenant's pod, as a MutatingAdmissionPolicy for one namespace.
fn equivalent_policy() -> [Value; 2] {
    let toleration =
        "Object.spec.tolerations{key: 'node-pool', operator: 'Equal', value: 'pool-a', effect: 'NoSchedule'}";
    // Apply configurations treat a selector as an atomic map and may not change it.
    let pinned = "has(object.spec.nodeSelector) ? \
                  [JSONPatch{op: 'add', path: '/spec/nodeSelector/node-pool', value: 'pool-a'}] : \
                  [JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'node-pool': 'pool-a'}}]";
    let added = format!(
        "has(object.spec.tolerations) ? [JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {toleration}}}] : \
         [JSONPatch{{op: 'add', path: '/spec/tolerations', value: [{toleration}]}}]"
    );
    let guard = "!has(object.spec.tolerations) || !object.spec.tolerations.exists(t, has(t.key) && t.key == 'node-pool')";
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": "bench"},
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": BY_POLICY}},
                    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]
                },
                "matchConditions": [{"name": "not-yet", "expression": guard}],
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": pinned}},
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": added}}
                ]
            }
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "bench"}, "spec": {"policyName": "bench"}
        }),
    ]
}
