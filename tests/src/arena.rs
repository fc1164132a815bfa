//! A control plane with Croft's manifests, tenants and their namespaces, for tests of admission.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use croft_policy::{
    Config, Mutation, OnConflict, Pool, Provisioner, Tenant,
    declarations::Declarations,
    definitions::{TENANCY_LABEL, parameter, webhook},
    policies::{
        self,
        parameters::{self, Creation},
    },
    selector::{Requirement, Selector, Test},
    taint::{Effect, Effects},
};
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options, Part,
    wait::{Seen, until},
};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration},
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::Status,
    discovery::ApiResource,
};
use serde_json::{Value, json};

/// Timeout for slow operations on a busy computer.
pub const SOON: Duration = Duration::from_secs(60);

/// The environment's variable with the mode of arenas, as in the settings.
pub const MODE: &str = "CROFT_MUTATION";
/// The condition of the mutating webhooks in Policy mode.
const NOT_PLANNED_BY_POLICIES: &str = "not-planned-by-policies";

/// The result of a request.
#[derive(Debug)]
pub enum Answer {
    /// It took effect, or would have.
    Done(Box<DynamicObject>),
    /// It was denied.
    Refused(Box<Status>),
}

impl Answer {
    /// The denial's message, or the allowed object.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Done(object) => format!("allowed: {}", object.data),
            Self::Refused(status) => status.message.clone(),
        }
    }

    /// True if it was allowed.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// Starts a control plane without scheduler, controllers and kubelets, so that only the test's requests change it.
///
/// # Errors
/// If it doesn't start, or the manifests don't apply.
pub async fn quiet() -> anyhow::Result<(ControlPlane, Croft)> {
    quiet_of(Options::default()).await
}

/// [`quiet`] with these options.
///
/// # Errors
/// If it doesn't start, or the manifests don't apply.
pub async fn quiet_of(options: Options) -> anyhow::Result<(ControlPlane, Croft)> {
    let options = options
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await?;
    let croft = Croft::install(&plane, CroftOptions::find()?).await?;
    Ok((plane, croft))
}

/// A pool that all tests share.
#[must_use]
pub fn pool(name: &str, key: &str, value: &str, effects: Effects, provisioner: Provisioner) -> Pool {
    Pool {
        name: name.to_owned(),
        created: None,
        key: key.to_owned(),
        value: value.to_owned(),
        effects,
        shared_with: Vec::new(),
        provisioner,
        template: croft_policy::NodeTemplate::default(),
        tenants: croft_policy::PoolTenants::default(),
    }
}

/// A tenant with its namespaces and pools.
#[must_use]
pub fn tenant(name: &str, namespaces: &[&str], pools: &[&str]) -> Tenant {
    let owned = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect();
    Tenant {
        name: name.to_owned(),
        created: None,
        namespaces: owned(namespaces),
        selector: None,
        pools: owned(pools),
        on_conflict: OnConflict::Reject,
        unreadable_claims: false,
        creation: None,
        owners: Vec::new(),
        peers: Vec::new(),
        needs_objects: false,
    }
}

/// The index of these tenants and pools.
#[must_use]
pub fn rules(tenants: &[Tenant], pools: &[Pool]) -> Declarations {
    Declarations::new(&Config::default(), tenants.iter(), pools.iter())
}

/// Writes the policies' parameters, and the annotations of `namespaces`, as the controller would, and waits until the
/// API server's policies read them.
///
/// # Errors
/// If the API server refuses them.
pub async fn mark(plane: &ControlPlane, rules: &Declarations, namespaces: &[&str]) -> anyhow::Result<()> {
    mark_for(plane, rules, namespaces, rules.mutation()).await
}

/// [`mark`], with the mutating policies on or off whatever the settings say.
///
/// # Errors
/// If the API server refuses them.
pub async fn mark_for(
    plane: &ControlPlane,
    rules: &Declarations,
    namespaces: &[&str],
    mutation: Mutation,
) -> anyhow::Result<()> {
    let api: Api<Namespace> =
        Api::all(plane.client_for(&rules.controller_user(), &["system:masters"]).await?);
    let parameters = policies::parameters(rules, rules.is_active(), mutation, |_| Creation::Open);
    let patch = json!({"metadata": {"annotations": parameters}});
    api.patch(croft_testkit::croft::NAMESPACE, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    for name in namespaces {
        let owner = rules.owner(name, |_| None).and_then(|id| rules.tenant(id));
        let (labels, annotations) = policies::namespace_metadata(rules, name, owner);
        let patch = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
        });
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        if api.get_opt(name).await?.is_none() {
            api.create(&PostParams::default(), &namespace).await?;
        }
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    let revision = parameters.get(parameter::REVISION).cloned().unwrap_or_default();
    in_force(&api, &revision).await
}

/// Waits until the API server's policies read the parameters of `revision`.
///
/// # Errors
/// On timeout.
pub async fn in_force(api: &Api<Namespace>, revision: &str) -> anyhow::Result<()> {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let probe = json!({"metadata": {"annotations": {parameter::PROBE: revision}}});
    until("the policies' parameters in force", SOON, async || {
        let said = match api.patch(croft_testkit::croft::NAMESPACE, &dry, &Patch::Merge(&probe)).await {
            Ok(_) => "allowed".to_owned(),
            Err(kube::Error::Api(status)) => status.message,
            Err(error) => return Err(error),
        };
        let yes = said.contains(&format!("{}{revision}", parameters::IN_FORCE));
        Ok(Seen::from_option(yes.then_some(()), said))
    })
    .await?;
    Ok(())
}

/// Creates `object`, a whole manifest, for real or by dry run.
///
/// # Errors
/// If the answer is neither the object nor a denial.
pub async fn create(client: &Client, object: &Value, dry_run: bool) -> anyhow::Result<Answer> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let plural = format!("{}s", kind.to_lowercase());
    let resource =
        ApiResource::from_gvk_with_plural(&kube::core::GroupVersionKind::gvk(group, version, &kind), &plural);
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject =
        serde_json::from_value(object.clone()).context("failed to read a manifest")?;
    answer(api.create(&PostParams { dry_run, ..PostParams::default() }, &object).await)
}

/// Splits a result into allowed and denied.
///
/// # Errors
/// If it is neither.
pub fn answer(result: Result<DynamicObject, kube::Error>) -> anyhow::Result<Answer> {
    match result {
        Ok(object) => Ok(Answer::Done(Box::new(object))),
        Err(kube::Error::Api(status)) => Ok(Answer::Refused(status)),
        Err(error) => Err(error.into()),
    }
}

/// Croft's label and annotations of a namespace, which no other process may change.
#[must_use]
pub fn of_croft(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| *key == TENANCY_LABEL);
    let annotations = metadata.annotations.iter().flatten();
    let annotations = annotations.filter(|(key, _)| key.starts_with(parameter::PREFIX));
    labels.chain(annotations).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Removes the mutating policy that takes back what others write of Croft's metadata, where the API server has it.
///
/// # Errors
/// If it can't be removed.
pub async fn end_taking_back(plane: &ControlPlane) -> anyhow::Result<()> {
    let served = plane.kubectl(["get", "--raw", "/apis/admissionregistration.k8s.io/v1"]).await?;
    if served.contains("\"mutatingadmissionpolicybindings\"") {
        let name = "croft-namespace-metadata";
        plane.kubectl(["delete", "mutatingadmissionpolicybinding", name]).await?;
    }
    Ok(())
}

/// Waits until a pod that only a policy denies is denied with `sentence`: policies take effect about a second after
/// they are written.
///
/// # Errors
/// On timeout.
pub async fn enforced(client: &Client, pod: &Value, sentence: &str) -> anyhow::Result<()> {
    until(sentence, SOON, async || {
        let said = create(client, pod, true).await?.sentence();
        anyhow::Ok(Seen::from_option(said.contains(sentence).then_some(()), said))
    })
    .await?;
    Ok(())
}

/// A pod with this spec besides its container.
#[must_use]
pub fn pod(namespace: &str, name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    });
    if let (Some(into), Value::Object(from)) = (pod.get_mut("spec").and_then(Value::as_object_mut), spec) {
        into.extend(from);
    }
    pod
}

/// Every pod of the cluster.
///
/// # Errors
/// If they can't be listed.
pub async fn pods(client: &Client) -> anyhow::Result<Vec<Pod>> {
    Ok(Api::<Pod>::all(client.clone()).list(&Default::default()).await?.items)
}

/// Two tenants, pools with provisioner None, their nodes, a non-tenant namespace, and one of node agents, as manifests.
/// KWOK plays the nodes.
pub const ARENA: &str = r"
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-a}
spec: {key: node-pool, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-a2}
spec: {key: other-key, value: two, effects: [NoSchedule, NoExecute], provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-b}
spec: {key: node-pool, provisioner: None, sharedWith: [agents]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: a}
spec: {namespaces: [tenant-a], namespaceSelector: {matchLabels: {team: a}}, pools: [pool-a, pool-a2]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: b}
spec: {namespaces: [tenant-b], pools: [pool-b]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: maker}
rules:
- {apiGroups: [''], resources: [namespaces], verbs: ['*']}
- {apiGroups: [''], resources: [pods, pods/binding, bindings], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: maker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: maker}
subjects: [{kind: User, name: maker}]
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: far}
handler: far
scheduling: {nodeSelector: {node-pool: pool-b}, tolerations: [{operator: Exists}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: near}
handler: near
scheduling: {tolerations: [{operator: Exists}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000000
";

/// The pools of tenant a, as its namespaces carry them: of two, each with what its nodes can be.
pub const POOLS_OF_A: &str = "node-pool=pool-a:NoSchedule:pool-a:pool-a:\
     node-pool=in=pool-a node-restriction.kubernetes.io/pool=in=pool-a other-key=absent=|||;\
     other-key=two:NoSchedule,NoExecute:pool-a2:pool-a2:\
     node-pool=absent= node-restriction.kubernetes.io/pool=in=pool-a2 other-key=in=two|||";

/// Namespaces of [`arena`], in which the user `jane` has the default role `admin`.
pub const NAMESPACES: [&str; 4] = ["tenant-a", "tenant-b", "no-tenant", "agents"];

/// Key, value and pool-name label of a node's pool.
pub type InPool = (&'static str, &'static str, &'static str);

/// Name, key, value and pool-name label of each node of [`arena`]; the first has no pool.
pub const NODES: [(&str, Option<InPool>); 7] = [
    ("free-1", None),
    ("free-2", None),
    ("a-1", Some(("node-pool", "pool-a", "pool-a"))),
    ("a-2", Some(("node-pool", "pool-a", "pool-a"))),
    ("two-1", Some(("other-key", "two", "pool-a2"))),
    ("b-1", Some(("node-pool", "pool-b", "pool-b"))),
    ("b-2", Some(("node-pool", "pool-b", "pool-b"))),
];

/// True if a pod of `namespace` may run on `node`, by their names.
#[must_use]
pub fn may_be_on(namespace: &str, node: &str) -> bool {
    let pool = node.split('-').next().unwrap_or_default();
    match namespace {
        "tenant-a" => matches!(pool, "a" | "two"),
        "tenant-b" => pool == "b",
        "agents" => matches!(pool, "free" | "b"),
        "kube-system" => true,
        _ => pool == "free",
    }
}

/// The mode that the environment asks for: `make policy-mode` runs suites in Policy mode.
///
/// # Errors
/// If it is none.
pub fn mode() -> anyhow::Result<Mutation> {
    let Ok(text) = std::env::var(MODE) else { return Ok(Mutation::default()) };
    Mutation::parse(&text).with_context(|| format!("{MODE}={text}: write Webhook or Policy"))
}

/// The sentence that refuses a pod of a namespace that is still without pools, in the mode that the environment asks for.
///
/// # Errors
/// If it asks for none.
pub fn refusal_without_pools() -> anyhow::Result<&'static str> {
    Ok(match mode()? {
        Mutation::Webhook => "doesn't have the objects yet that its Tenant declares",
        Mutation::Policy => "its pools are not written on it yet",
    })
}

/// The settings of a mode, as a manifest.
#[must_use]
pub fn settings(mode: Mutation) -> String {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"admission": {"mutation": mode.as_str()}}})
    .to_string()
}

/// Waits until the parameter is `mode` and the webhook is registered for it.
///
/// # Errors
/// On timeout.
pub async fn in_mode(client: &Client, mode: Mutation) -> anyhow::Result<()> {
    in_mode_within(client, mode, SOON).await
}

/// [`in_mode`], for at most `timeout`.
///
/// # Errors
/// On timeout.
pub async fn in_mode_within(client: &Client, mode: Mutation, timeout: Duration) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(mode.as_str(), timeout, async || {
        let own = namespaces.get(croft_testkit::croft::NAMESPACE).await?;
        let annotations = own.metadata.annotations.unwrap_or_default();
        let written = annotations.get(parameter::MUTATION).cloned().unwrap_or_default();
        let hooks = configurations.get("croft-webhook").await?.webhooks.unwrap_or_default();
        let is_narrow = |hook: &MutatingWebhook| {
            hook.match_conditions.iter().flatten().any(|c| c.name == NOT_PLANNED_BY_POLICIES)
        };
        let mut of_pods = hooks.iter().filter(|hook| hook.name != webhook::NAMESPACES);
        let narrow = !hooks.is_empty() && of_pods.all(is_narrow);
        let done = written == mode.as_str() && narrow == (mode == Mutation::Policy);
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), format!("{written}, narrow: {narrow}")))
    })
    .await?;
    Ok(())
}

/// A whole control plane with the webhook, current policy parameters, and [`ARENA`].
///
/// # Errors
/// If a process doesn't start.
pub async fn arena(options: Options) -> anyhow::Result<(ControlPlane, Croft)> {
    arena_of(options, CroftOptions::find()?).await
}

async fn arena_of(options: Options, croft: CroftOptions) -> anyhow::Result<(ControlPlane, Croft)> {
    let plane = ControlPlane::start(options).await?;
    let mut croft = Croft::install(&plane, croft).await?;
    plane.apply(ARENA).await?;
    let mut manifests = Vec::new();
    for (name, pool) in NODES {
        let mut labels = json!({"lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
        let mut taints = Vec::new();
        if let (Some((key, value, mark)), Some(map)) = (pool, labels.as_object_mut()) {
            map.insert(key.to_owned(), json!(value));
            map.insert("node-restriction.kubernetes.io/pool".to_owned(), json!(mark));
            let effects: &[&str] =
                if key == "other-key" { &["NoSchedule", "NoExecute"] } else { &["NoSchedule"] };
            taints.extend(effects.iter().map(|effect| json!({"key": key, "value": value, "effect": effect})));
        }
        manifests.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"capacity": {"cpu": "64", "memory": "256Gi", "pods": "500"},
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"}},
        }));
    }
    for namespace in NAMESPACES {
        manifests.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        manifests.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "jane", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        }));
    }
    let manifests: Vec<String> = manifests.iter().map(Value::to_string).collect();
    plane.apply(&manifests.join("\n---\n")).await?;
    croft.resume(&plane, Part::Webhook).await?;
    Ok((plane, croft))
}

/// The index of [`ARENA`].
#[must_use]
pub fn arena_rules() -> Declarations {
    let effects = |list: &[Effect]| list.iter().copied().collect::<Effects>();
    let soft = || effects(&[Effect::NoSchedule]);
    let mut shared = pool("pool-b", "node-pool", "pool-b", soft(), Provisioner::None);
    shared.shared_with = vec!["agents".to_owned()];
    let pools = [
        pool("pool-a", "node-pool", "pool-a", soft(), Provisioner::None),
        pool(
            "pool-a2",
            "other-key",
            "two",
            effects(&[Effect::NoSchedule, Effect::NoExecute]),
            Provisioner::None,
        ),
        shared,
    ];
    let team = Requirement { key: "team".to_owned(), test: Test::In(vec!["a".to_owned()]) };
    let mut first = tenant("a", &["tenant-a"], &["pool-a", "pool-a2"]);
    first.selector = Some(Selector::new(vec![team]));
    rules(&[first, tenant("b", &["tenant-b"], &["pool-b"])], &pools)
}

/// [`arena`] with the annotations that the controller would write, once webhook and policies have read them.
///
/// # Errors
/// If a process doesn't start.
pub async fn marked_arena(options: Options) -> anyhow::Result<(ControlPlane, Croft)> {
    marked_arena_in(options, mode()?).await
}

/// [`marked_arena`] in a mode.
///
/// # Errors
/// If a process doesn't start.
pub async fn marked_arena_in(options: Options, mode: Mutation) -> anyhow::Result<(ControlPlane, Croft)> {
    let (plane, croft) = arena(options).await?;
    let admin = plane.admin().await?;
    mark_for(&plane, &arena_rules(), &NAMESPACES, mode).await?;
    if mode == Mutation::Policy {
        plane.apply(&settings(mode)).await?;
        in_mode(&admin, mode).await?;
    }
    settled(&admin).await?;
    Ok((plane, croft))
}

/// [`arena`] with the controller, which writes annotations and parameters, once webhook and policies have read them.
///
/// # Errors
/// If a process doesn't start.
pub async fn kept_arena(options: Options) -> anyhow::Result<(ControlPlane, Croft)> {
    kept_arena_of(options, CroftOptions::find()?).await
}

/// [`kept_arena`], installed as `croft` says.
///
/// # Errors
/// If a process doesn't start.
pub async fn kept_arena_of(options: Options, croft: CroftOptions) -> anyhow::Result<(ControlPlane, Croft)> {
    let (plane, mut croft) = arena_of(options, croft).await?;
    croft.resume(&plane, Part::Cloud).await?;
    croft.resume(&plane, Part::Controller).await?;
    let admin = plane.admin().await?;
    settled(&admin).await?;
    if mode()? == Mutation::Policy {
        plane.apply(&settings(Mutation::Policy)).await?;
        in_mode(&admin, Mutation::Policy).await?;
    }
    Ok((plane, croft))
}

/// Waits until webhook and policies know the tenants of [`ARENA`].
///
/// # Errors
/// On timeout.
pub async fn settled(admin: &Client) -> anyhow::Result<()> {
    until("a ServiceAccount, a pinned pod and a refused one", SOON, async || {
        let pinned = create(admin, &pod("tenant-a", "probe", json!({})), true).await?.sentence();
        let named =
            create(admin, &pod("no-tenant", "probe", json!({"nodeName": "b-1"})), true).await?.sentence();
        let done = pinned.contains("\"node-pool\":\"pool-a\"") && named.contains("belongs to no tenant");
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{pinned}\n{named}")))
    })
    .await?;
    Ok(())
}

/// Every misplaced pod.
///
/// # Errors
/// If pods can't be listed.
pub async fn misplaced_pods(admin: &Client) -> anyhow::Result<Vec<String>> {
    let mut misplaced_pods = Vec::new();
    for pod in pods(admin).await? {
        let (namespace, name) =
            (pod.metadata.namespace.unwrap_or_default(), pod.metadata.name.unwrap_or_default());
        if let Some(node) = pod.spec.and_then(|s| s.node_name).filter(|node| !may_be_on(&namespace, node)) {
            misplaced_pods.push(format!("{namespace}/{name} on {node}"));
        }
    }
    Ok(misplaced_pods)
}
