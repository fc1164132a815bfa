//! The verbs that RBAC grants to Croft's processes, compared with their requests in a day's work.

use std::collections::BTreeSet;

use croft_api::TenantPool;
use croft_policy::{definitions::POOL_NAME_LABEL, policies::parameters::IN_FORCE};
use croft_testkit::{
    CroftOptions, Options, Part, http,
    wait::{Seen, until},
};
use croft_tests::{
    audit::{Audit, CONTROLLER_USER, Request, WEBHOOK_USER},
    manifests::{class, daemon_set, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, claims, events, node_of, nodes, pods, running},
};
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRole, PolicyRule, Role},
};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

const TENANT: &str = "tenant-a";
const POOL: &str = "pool-a";
/// The one node that Croft doesn't launch.
const BY_HAND: &str = "by-hand";
/// More detailed logs than a diagnosis needs.
const CHATTY: &str = "--log=info,croft_webhook=trace,croft_controller=trace,croft_runtime=trace,croft_cloud_aws=trace,kube=debug";

/// User, group, resource, verb, and the reason of the grant.
type Unseen = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Verbs that the audit log doesn't show, each with the reason why it is granted.
const UNSEEN: &[Unseen] = &[
    (WEBHOOK_USER, "croft.dev", "tenants", "list", NO_STREAMS),
    (WEBHOOK_USER, "croft.dev", "tenantpools", "list", NO_STREAMS),
    (WEBHOOK_USER, "croft.dev", "croftconfigs", "list", NO_STREAMS),
    (WEBHOOK_USER, "", "namespaces", "list", NO_STREAMS),
    (WEBHOOK_USER, "", "nodes", "list", NO_STREAMS),
    (CONTROLLER_USER, "rbac.authorization.k8s.io", "clusterroles", "bind", NO_REQUEST),
];
const NO_REQUEST: &str = "the writer of a RoleBinding needs it, and no request has it as its verb";
const NO_STREAMS: &str = "an API server that has no streaming lists is asked for ordinary ones";

/// One verb on one resource, for one user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    user: &'static str,
    group: String,
    resource: String,
    verb: String,
    /// For these names; for all if empty.
    names: Vec<String>,
}

impl Grant {
    fn is_used_by(&self, request: &Request) -> bool {
        let Request { user, verb, group, resource, name, .. } = request;
        self.user == user
            && self.verb == *verb
            && self.group == *group
            && self.resource == *resource
            && (self.names.is_empty() || self.names.contains(name))
    }
}

fn is_the_unseen(grant: &Grant, (user, group, resource, verb, _): &Unseen) -> bool {
    grant.user == *user && grant.group == *group && grant.resource == *resource && grant.verb == *verb
}

fn grants(user: &'static str, rules: Vec<PolicyRule>) -> Vec<Grant> {
    let mut grants = Vec::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                grants.extend(rule.verbs.iter().map(|verb| Grant {
                    user,
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                    names: rule.resource_names.clone().unwrap_or_default(),
                }));
            }
        }
    }
    grants
}

async fn granted(client: &Client) -> Vec<Grant> {
    let (cluster, own): (Api<ClusterRole>, Api<Role>) =
        (Api::all(client.clone()), Api::namespaced(client.clone(), "croft-system"));
    let mut all = Vec::new();
    for (name, user) in [("croft-controller", CONTROLLER_USER), ("croft-webhook", WEBHOOK_USER)] {
        all.extend(grants(user, cluster.get(name).await.unwrap().rules.unwrap_or_default()));
        all.extend(grants(user, own.get(name).await.unwrap().rules.unwrap_or_default()));
    }
    all
}

fn daemonset() -> Value {
    daemon_set(TENANT, "agent", json!({"terminationGracePeriodSeconds": 1}))
}

fn instance(claim: &croft_api::NodeClaim) -> String {
    let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Waits until no claim of the pool is left, or none of `old`.
async fn gone(client: &Client, old: &BTreeSet<String>) {
    until("the end of claims", EVENTUALLY, async || {
        let names: Vec<String> = claims(client, POOL).await?.iter().map(|claim| claim.name_any()).collect();
        let left = names.iter().any(|name| old.contains(name));
        Ok::<_, kube::Error>(Seen::from_option((!left).then_some(()), names.join(", ")))
    })
    .await
    .unwrap();
}

fn names(claims: &[croft_api::NodeClaim]) -> BTreeSet<String> {
    claims.iter().map(|claim| claim.name_any()).collect()
}

/// Everything that Croft does with an API server, once.
async fn a_days_work(stack: &mut Stack, client: &Client) {
    // A workload and a node agent from before their tenant: pods are recreated, the DaemonSet is planned again.
    let quiet = json!({"consolidateAfter": "Never"});
    let [namespace, mut pool, tenant] = tenant(TENANT, POOL, &on_demand(&["m5.xlarge"], quiet));
    pool["spec"]["key"] = json!("node-pool");
    let small = deployment(TENANT, "small", 1, "100m", "128Mi");
    let before = [namespace, daemonset(), deployment(TENANT, "large", 1, "2", "1Gi"), small];
    stack.plane.apply(&joined(&before)).await.unwrap();
    until("the pods that are too early", EVENTUALLY, async || {
        let count = pods(client, TENANT).await?.len();
        Ok::<_, kube::Error>(Seen::from_option((count == 2).then_some(()), format!("{count} pods")))
    })
    .await
    .unwrap();
    let config = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"}, "spec": {}});
    stack.plane.apply(&joined(&[config, class("default"), pool.clone(), tenant])).await.unwrap();
    // Two pods and the agent's, on one instance: they differ, so they are nominated.
    let up = running(client, TENANT, 3).await.unwrap();
    let node = node_of(&up[0]);
    assert!(up.iter().all(|pod| node_of(pod) == node), "{:?}", up.iter().map(node_of).collect::<Vec<_>>());

    // A node that another provisioner made for a pool, without its taint.
    let by_hand = [
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "pool-b"},
            "spec": {"provisioner": "None"}}),
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": BY_HAND, "labels": {"lab.croft.dev/kubelet": "kwok", POOL_NAME_LABEL: "pool-b"}}}),
    ];
    stack.plane.apply(&joined(&by_hand)).await.unwrap();
    until("the taint of the node that others made", EVENTUALLY, async || {
        let all = nodes(client).await?;
        let taints = all.get(BY_HAND).and_then(|node| node.spec.clone()?.taints).unwrap_or_default();
        let tainted = taints.iter().any(|taint| taint.key == POOL_NAME_LABEL);
        Ok::<_, kube::Error>(Seen::from_option(tainted.then_some(()), format!("{taints:?}")))
    })
    .await
    .unwrap();

    a_closed_network(stack).await;
    quota_defaults_and_owners(stack).await;
    a_pool_for_many_tenants(stack, client).await;

    // An interruption: a replacement, then evictions, then the end of claim and node.
    let old = claims(client, POOL).await.unwrap();
    let news = json!({"do": "interrupt", "instance": instance(&old[0]), "news": "spot-warning"});
    stack.control(&news).await.unwrap();
    gone(client, &names(&old)).await;
    running(client, TENANT, 3).await.unwrap();

    // An instance that terminates ends its pods.
    let old = claims(client, POOL).await.unwrap();
    stack.control(&json!({"do": "end", "instance": instance(&old[0])})).await.unwrap();
    gone(client, &names(&old)).await;
    running(client, TENANT, 3).await.unwrap();

    // Drift, then the end of the pool.
    let old = claims(client, POOL).await.unwrap();
    pool["spec"]["template"]["metadata"] = json!({"labels": {"team": "blue"}});
    stack.plane.apply(&joined(&[pool])).await.unwrap();
    gone(client, &names(&old)).await;
    let old = names(&claims(client, POOL).await.unwrap());
    stack.plane.kubectl(["delete", "tenant", TENANT, "--wait=false"]).await.unwrap();
    stack.plane.kubectl(["delete", "tenantpool", POOL, "--wait=false"]).await.unwrap();
    gone(client, &old).await;
    let pools: Api<TenantPool> = Api::all(client.clone());
    until("the pool's end", EVENTUALLY, async || {
        let left = pools.get_opt(POOL).await?.is_some();
        let nodes: Vec<String> = nodes(client).await?.into_keys().filter(|name| name != BY_HAND).collect();
        let done = !left && nodes.is_empty();
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), nodes.join(", ")))
    })
    .await
    .unwrap();
}

/// A pool for many tenants: one is made for a tenant, and goes with it.
async fn a_pool_for_many_tenants(stack: &Stack, client: &Client) {
    let objects = [
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "many"},
            "spec": {"key": "many", "perTenant": true, "provisioner": "None"}}),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "one"},
            "spec": {"namespaces": ["one"], "pools": ["many"]}}),
    ];
    stack.plane.apply(&joined(&objects)).await.unwrap();
    let pools: Api<TenantPool> = Api::all(client.clone());
    let own_pool = async |what: &str, is_there: bool| {
        until(what, EVENTUALLY, async || {
            let found = pools.get_opt("many-one").await?.is_some();
            Ok::<_, kube::Error>(Seen::from_option((found == is_there).then_some(()), found.to_string()))
        })
        .await
        .unwrap();
    };
    own_pool("the tenant's pool", true).await;
    stack.plane.kubectl(["delete", "tenant", "one", "--wait=false"]).await.unwrap();
    own_pool("the end of the tenant's pool", false).await;
}

/// A closed network: its policy is created, restored after a change by hand, and deleted with the field.
async fn a_closed_network(stack: &Stack) {
    const POLICY: &str = "croft-tenant-network";
    let declare = async |isolation: Value| {
        let patch = json!({"spec": {"networkIsolation": isolation}}).to_string();
        stack.plane.kubectl(["patch", "tenant", TENANT, "--type=merge", "-p", &patch]).await.unwrap();
    };
    let policy = async |what: &str, is_right: &(dyn Fn(&str) -> bool + Sync)| {
        until(what, EVENTUALLY, async || {
            let words = ["get", "networkpolicies", "-n", TENANT, "-o", "jsonpath={.items[*].spec}"];
            let found = stack.plane.kubectl(words).await?;
            anyhow::Ok(Seen::from_option(is_right(&found).then_some(()), found))
        })
        .await
        .unwrap();
    };
    declare(json!({"enabled": true})).await;
    policy("a policy", &|found| found.contains(TENANT)).await;
    let open = json!({"spec": {"ingress": [{}]}}).to_string();
    stack
        .plane
        .kubectl(["patch", "networkpolicy", POLICY, "-n", TENANT, "--type=merge", "-p", &open])
        .await
        .unwrap();
    policy("the policy restored", &|found| found.contains(TENANT)).await;
    declare(Value::Null).await;
    policy("no policy", &|found| found.is_empty()).await;
}

/// Quota, defaults and owners of the tenant's namespace: created, restored after a change by hand, and deleted with the fields.
async fn quota_defaults_and_owners(stack: &Stack) {
    let patch = async |words: &[&str], patch: Value| {
        let patch = patch.to_string();
        stack.plane.kubectl([&["patch"][..], words, &["--type=merge", "-p", &patch]].concat()).await.unwrap();
    };
    let found = async |what: &str, is_right: &(dyn Fn(&str) -> bool + Sync)| {
        until(what, EVENTUALLY, async || {
            let kinds = "resourcequotas,limitranges,rolebindings,clusterrolebindings";
            let words = ["get", kinds, "-n", TENANT, "-l", "croft.dev/tenant", "-o", "json"];
            let found = stack.plane.kubectl(words).await?;
            anyhow::Ok(Seen::from_option(is_right(&found).then_some(()), found))
        })
        .await
        .unwrap();
    };
    let is_whole = |found: &str| {
        // She is in the bindings of the namespace and of the whole cluster.
        ["\"77\"", "\"7m\""].iter().all(|part| found.contains(part))
            && found.matches("jane-of-verbs").count() == 2
    };
    let given = json!({"quota": {"perNamespace": {"pods": 77}}, "defaults": {"requests": {"cpu": "7m"}},
        "owners": [{"kind": "User", "name": "jane-of-verbs"}],
        "namespaceCreation": {"prefix": "verbs-", "maximum": 1}});
    patch(&["tenant", TENANT], json!({"spec": given})).await;
    found("quota, defaults and owners", &is_whole).await;
    patch(&["resourcequota", "croft-tenant-quota", "-n", TENANT], json!({"spec": {"hard": {"pods": "78"}}}))
        .await;
    patch(&["limitrange", "croft-tenant-defaults", "-n", TENANT], json!({"spec": {"limits": []}})).await;
    patch(&["rolebinding", "croft-tenant-owners-admin", "-n", TENANT], json!({"subjects": []})).await;
    let creators = format!("croft-tenant-namespaces-{TENANT}");
    patch(&["clusterrolebinding", &creators], json!({"subjects": []})).await;
    found("quota, defaults and owners restored", &is_whole).await;
    let none = json!({"quota": null, "defaults": null, "owners": null, "namespaceCreation": null});
    patch(&["tenant", TENANT], json!({"spec": none})).await;
    found("none of them", &|found| !found.contains("croft-tenant-")).await;
}

/// Logs, metrics and events.
async fn everything_said(stack: &mut Stack, client: &Client) -> String {
    let mut said = String::new();
    for part in [Part::Webhook, Part::Controller] {
        let health = stack.croft.health(part).unwrap();
        said.push_str(&http::get(health, "/metrics").await.unwrap().body);
        said.push_str(&std::fs::read_to_string(stack.plane.log(part.binary())).unwrap());
    }
    for (_, reason, note) in events(client).await.unwrap() {
        said.push_str(&format!("{reason} {note}\n"));
    }
    assert!(said.contains("croft_webhook_") && said.contains("leading") && said.contains("SpotWarning"));
    said
}

/// Markers of private keys and tokens.
async fn secrets(stack: &Stack, client: &Client) -> Vec<String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "croft-system");
    let held = api.get("croft-webhook-tls").await.unwrap().data.unwrap();
    let keys = held.into_iter().filter(|(name, _)| name.ends_with(".key"));
    let pem = keys.map(|(_, key)| String::from_utf8(key.0).unwrap()).collect::<Vec<_>>().join("\n");
    let mut words: Vec<String> = pem
        .lines()
        .filter(|line| !line.starts_with("--"))
        .map(|line| line.chars().take(24).collect())
        .collect();
    assert!(words.len() >= 4, "the leaf's key and the authority's");
    let before = words.len();
    for file in std::fs::read_dir(stack.plane.folder().join("kubeconfig")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let tokens =
            text.split(|c: char| c.is_whitespace() || c == '"').filter(|word| word.starts_with("eyJ"));
        // A token's signature: its claims are in the audit log of any cluster.
        words.extend(tokens.filter_map(|token| token.rsplit('.').next().map(str::to_owned)));
    }
    assert!(words.len() >= before + 2, "a token for each process");
    words.retain(|word| word.len() >= 16);
    words
}

/// Denials, except the one that the controller requests to learn whether its parameters are in force, and those of a
/// namespace that is being deleted, which accepts no new object.
fn is_forbidden(request: &Request) -> bool {
    let said = |words: &str| request.message.contains(words);
    request.code == 403 && !said(IN_FORCE) && !said("because it is being terminated")
}

#[tokio::test]
async fn all_granted_verbs_are_used_and_no_secret_is_logged() {
    let (mut audit, options) = Audit::new(Options::default(), &[CONTROLLER_USER, WEBHOOK_USER]).unwrap();
    let croft = CroftOptions::find()
        .unwrap()
        .flag(Part::Controller, "--interruption-queue=croft")
        .flag(Part::Controller, CHATTY)
        .flag(Part::Webhook, "--drain=1")
        .flag(Part::Webhook, CHATTY);
    let mut stack = Stack::start_with(options, croft).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    a_days_work(&mut stack, &client).await;
    let said = everything_said(&mut stack, &client).await;
    for word in secrets(&stack, &client).await {
        assert!(!said.contains(&word), "{}... is told", word.get(..8).unwrap_or_default());
    }
    // On shutdown the processes release their Leases.
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.stop(part, EVENTUALLY).await.unwrap();
    }

    let requests = audit.take().unwrap();
    let forbidden: BTreeSet<&Request> = requests.iter().filter(|request| is_forbidden(request)).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    let granted = granted(&client).await;
    let unused: Vec<&Grant> = granted
        .iter()
        .filter(|grant| !requests.iter().any(|request| grant.is_used_by(request)))
        .filter(|grant| !UNSEEN.iter().any(|unseen| is_the_unseen(grant, unseen)))
        .collect();
    assert!(unused.is_empty(), "granted and not used: {unused:#?}");
    let stale = UNSEEN.iter().find(|unseen| !granted.iter().any(|grant| is_the_unseen(grant, unseen)));
    assert!(stale.is_none(), "the table lists what isn't granted: {stale:?}");
}
