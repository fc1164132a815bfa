//! `croft check`: is an installation healthy? Ordered checks, each with its remedy; what depends on a check that
//! failed is skipped, since its answer would mislead.

mod pod_security;

use std::{collections::BTreeSet, io::Write as _, process::ExitCode};

use clap::Args;
use croft_api::{
    CroftConfig, EC2NodeClass, Tenant, TenantPool,
    condition::{READY, Statement, UNLIMITED},
    config::SINGLETON,
    convert::{
        scheduler,
        unlimited::{self, REMEDY},
    },
    pool::Provisioner,
    stored::{INVALID_SPEC, Kind, Stored},
};
use croft_runtime::clock::{Clock as _, SystemClock};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
            ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        coordination::v1::Lease,
        core::v1::Namespace,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::{
    failure::Failure,
    live::ClusterArgs,
    output::Output,
    table::{BAD, BOLD, DIM, GOOD, NOTE, counted, shortened},
};

/// Options of `croft check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Namespace that Croft is installed in
    #[arg(short, long, value_name = "NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    namespace: String,
}

/// The name of Croft's webhook configurations.
const CONFIGURATION: &str = "croft-webhook";
/// That of Croft's earlier manifests.
const OLD_CONFIGURATION: &str = "croft";
/// The Lease of the controller that leads.
const LEADER: &str = "croft-controller";
/// Policies of Croft's earlier manifests, which nothing keeps up to date.
const OLD_POLICIES: &str = "croft-tenant-pods croft-strangers croft-pod-updates croft-kubelets";
/// A Lease that wasn't renewed for so many of its own durations has no holder.
const LEASE_GRACE: i64 = 2;

/// What is wrong, and what helps.
struct Trouble {
    what: String,
    remedy: String,
}

type Finding = Result<String, Trouble>;

fn trouble(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err(Trouble { what: what.into(), remedy: remedy.into() })
}

/// Runs the command; the exit code is 1 if a check fails.
pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let CheckArgs { cluster, namespace } = args;
    let failed = cluster.run(async |client| {
        let mut report = Report { out, failed: BTreeSet::new() };
        report.take("cluster", &[], api_server(&client).await)?;
        report.step("crds", &["cluster"], async || crds(&client).await).await?;
        report.step("namespace", &["cluster"], async || installed(&client, namespace).await).await?;
        report.step("webhook", &["namespace"], async || replicas(&client, namespace).await).await?;
        report.step("configurations", &["namespace"], async || configurations(&client).await).await?;
        report.step("policies", &["cluster"], async || policies(&client).await).await?;
        report.step("controller", &["namespace"], async || leader(&client, namespace).await).await?;
        report
            .step("classes", &["crds"], async || {
                ready::<EC2NodeClass>(&client, |c| c.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .step("config", &["crds"], async || {
                ready::<CroftConfig>(&client, |c| c.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .step("pools", &["crds"], async || {
                ready::<TenantPool>(&client, |p| p.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .step("tenants", &["crds"], async || {
                ready::<Tenant>(&client, |t| t.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .advise("pod security", &["crds"], async || pod_security::check(&client, namespace).await)
            .await?;
        report.advise("limits", &["crds"], async || limits(&client).await).await?;
        Ok(report.failed.len())
    })?;
    if failed == 0 {
        writeln!(out, "{GOOD}the installation is healthy{GOOD:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{BAD}{} failed or could not run{BAD:#}", counted(failed, "check"))?;
    Ok(ExitCode::FAILURE)
}

struct Report<'o> {
    out: &'o mut Output,
    failed: BTreeSet<&'static str>,
}

impl Report<'_> {
    async fn step(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Finding,
    ) -> anyhow::Result<()> {
        let finding =
            if needs.iter().any(|n| self.failed.contains(n)) { Ok(String::new()) } else { check().await };
        self.take(name, needs, finding)
    }

    /// A check of what isn't Croft's own: what it finds is said with its remedy, and the installation is healthy all the
    /// same.
    async fn advise(
        &mut self,
        name: &'static str,
        needs: &[&'static str],
        check: impl AsyncFnOnce() -> Finding,
    ) -> anyhow::Result<()> {
        if needs.iter().any(|need| self.failed.contains(need)) {
            return Ok(());
        }
        match check().await {
            Ok(words) => self.take(name, needs, Ok(words)),
            Err(Trouble { what, remedy }) => {
                writeln!(self.out, "{NOTE}warn{NOTE:#}  {BOLD}{name}{BOLD:#}: {what}\n      {remedy}")?;
                Ok(())
            }
        }
    }

    fn take(&mut self, name: &'static str, needs: &[&'static str], finding: Finding) -> anyhow::Result<()> {
        if let Some(need) = needs.iter().find(|n| self.failed.contains(*n)) {
            self.failed.insert(name);
            writeln!(self.out, "{DIM}skip{DIM:#}  {BOLD}{name}{BOLD:#}: needs {need}")?;
            return Ok(());
        }
        match finding {
            Ok(words) => writeln!(self.out, "{GOOD}ok{GOOD:#}    {BOLD}{name}{BOLD:#}: {words}")?,
            Err(Trouble { what, remedy }) => {
                self.failed.insert(name);
                writeln!(self.out, "{BAD}fail{BAD:#}  {BOLD}{name}{BOLD:#}: {what}\n      {remedy}")?;
            }
        }
        Ok(())
    }
}

async fn api_server(client: &Client) -> Finding {
    match client.apiserver_version().await {
        Ok(version) => Ok(format!("Kubernetes {}", version.git_version)),
        Err(error) => trouble(
            format!("the API server doesn't answer: {error}"),
            "look at the kubeconfig and the network: kubectl version",
        ),
    }
}

async fn crds(client: &Client) -> Finding {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let remedy = "install this version's CRDs: kubectl apply --server-side -k manifests/crds";
    let mut old = Vec::new();
    let wanted = croft_api::crds();
    for crd in &wanted {
        let name = crd.name_any();
        let found = match api.get_opt(&name).await {
            Ok(Some(found)) => found,
            Ok(None) => return trouble(format!("{name} isn't installed"), remedy),
            Err(error) => {
                return trouble(
                    format!("failed to read {name}: {error}"),
                    "ask for the ClusterRole croft-view",
                );
            }
        };
        let established = found
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten())
            .any(|c| c.type_ == "Established" && c.status == "True");
        if !established {
            return trouble(format!("{name} isn't established"), format!("kubectl describe crd {name}"));
        }
        // The API server fills in defaults, so only what people write is compared: the field names.
        if fields(&found) != fields(crd) {
            old.push(name);
        }
    }
    if old.is_empty() {
        Ok(format!("{}, as in this version", counted(wanted.len(), "CRD")))
    } else {
        trouble(format!("{} are of another version than this command", old.join(", ")), remedy)
    }
}

/// Paths of every field of the served version.
fn fields(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray,
    };
    fn walk(schema: &JSONSchemaProps, path: &str, into: &mut BTreeSet<String>) {
        for (name, inner) in schema.properties.iter().flatten() {
            let path = format!("{path}.{name}");
            walk(inner, &path, into);
            into.insert(path);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
            walk(inner, &format!("{path}[]"), into);
        }
    }
    let mut all = BTreeSet::new();
    for version in crd.spec.versions.iter().filter(|v| v.served) {
        if let Some(schema) = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()) {
            walk(schema, &version.name, &mut all);
        }
    }
    all
}

async fn installed(client: &Client, namespace: &str) -> Finding {
    match Api::<Namespace>::all(client.clone()).get_opt(namespace).await {
        Ok(Some(_)) => Ok(namespace.to_owned()),
        Ok(None) => trouble(
            format!("there is no namespace {namespace}"),
            "install Croft: kubectl apply -k manifests/deploy; or name its namespace with --namespace",
        ),
        Err(error) => trouble(
            format!("failed to read the namespace {namespace}: {error}"),
            "look at your rights: kubectl auth can-i get namespaces",
        ),
    }
}

fn is_held(lease: &Lease) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let Some(renewed) = &spec.renew_time else { return false };
    let age = SystemClock.wall().as_second().saturating_sub(renewed.0.as_second());
    let life = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    spec.holder_identity.as_deref().is_some_and(|h| !h.is_empty()) && age <= life.saturating_mul(LEASE_GRACE)
}

async fn replicas(client: &Client, namespace: &str) -> Finding {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let label = croft_policy::definitions::REPLICA_LABEL;
    let selected =
        ListParams::default().labels(&format!("{label}={}", croft_policy::replica_status::WEBHOOK));
    let remedy = format!(
        "look at its pods: kubectl -n {namespace} get pods; kubectl -n {namespace} logs deploy/croft-webhook"
    );
    match api.list(&selected).await {
        Ok(leases) => match leases.items.iter().filter(|l| is_held(l)).count() {
            0 => trouble("no replica of the webhook gives a sign of life: pods of tenants wait", remedy),
            n => Ok(counted(n, "replica")),
        },
        Err(error) => trouble(
            format!("failed to list the replicas' Leases: {error}"),
            "ask for the ClusterRole croft-view",
        ),
    }
}

async fn leader(client: &Client, namespace: &str) -> Finding {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let remedy = format!(
        "look at its pods: kubectl -n {namespace} get pods; kubectl -n {namespace} logs deploy/croft-controller"
    );
    match api.get_opt(LEADER).await {
        Ok(Some(lease)) if is_held(&lease) => {
            let holder = lease.spec.and_then(|s| s.holder_identity).unwrap_or_default();
            Ok(format!("{holder} leads"))
        }
        Ok(_) => trouble("no controller leads: no machine is launched or given back", remedy),
        Err(error) => trouble(
            format!("failed to read the Lease {LEADER}: {error}"),
            "ask for the ClusterRole croft-view",
        ),
    }
}

async fn configurations(client: &Client) -> Finding {
    let remedy =
        "install them anew: kubectl apply -k manifests/install; the webhook writes its certificate into them";
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get_opt(CONFIGURATION).await;
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(CONFIGURATION).await;
    let (mutating, validating) = match (mutating, validating) {
        (Ok(Some(mutating)), Ok(Some(validating))) => (mutating, validating),
        (Err(error), _) | (_, Err(error)) => {
            return trouble(format!("failed to read them: {error}"), "ask for the ClusterRole croft-view");
        }
        (Ok(None), _) => {
            return trouble(
                "there is no MutatingWebhookConfiguration croft-webhook: no pod is pinned",
                remedy,
            );
        }
        (_, Ok(None)) => return trouble("there is no ValidatingWebhookConfiguration croft-webhook", remedy),
    };
    let old = Api::<MutatingWebhookConfiguration>::all(client.clone()).get_opt(OLD_CONFIGURATION).await;
    if let Ok(Some(_)) = old {
        return trouble(
            "the configurations of an earlier version of Croft are still there, and no process keeps them up to date",
            "delete them: kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations --ignore-not-found croft",
        );
    }
    let mutating = mutating.webhooks.unwrap_or_default();
    let validating = validating.webhooks.unwrap_or_default();
    let clients: Vec<(&str, &WebhookClientConfig)> = mutating
        .iter()
        .map(|w| (w.name.as_str(), &w.client_config))
        .chain(validating.iter().map(|w| (w.name.as_str(), &w.client_config)))
        .collect();
    if mutating.is_empty() || validating.is_empty() {
        return trouble(
            "they have no webhooks: no pod is pinned, and the policies refuse tenants' pods",
            "see that the webhook runs and is ready; it writes them (kubectl -n croft-system logs deploy/croft-webhook)",
        );
    }
    let without: Vec<&str> = clients
        .iter()
        .filter(|(_, c)| c.ca_bundle.as_ref().is_none_or(|b| b.0.is_empty()))
        .map(|(n, _)| *n)
        .collect();
    if !without.is_empty() {
        return trouble(
            format!("{} have no caBundle: the API server can't call Croft", shortened(&without, 3)),
            "see that the webhook runs; it writes the caBundle (certs/README.md)",
        );
    }
    let bundles: BTreeSet<&[u8]> =
        clients.iter().filter_map(|(_, c)| c.ca_bundle.as_ref()).map(|b| b.0.as_slice()).collect();
    if bundles.len() > 1 {
        return trouble(
            "their caBundles differ",
            "wait for the webhook to write them anew, or look at its logs (certs/README.md)",
        );
    }
    let open: Vec<&str> = mutating
        .iter()
        .filter(|w| w.failure_policy.as_deref() != Some("Fail"))
        .map(|w| w.name.as_str())
        .filter(|n| !n.contains("warn"))
        .collect();
    if !open.is_empty() {
        return trouble(
            format!("{} don't fail closed: pods may land astray while Croft is away", shortened(&open, 3)),
            remedy,
        );
    }
    Ok(format!("{} with one certificate authority", counted(clients.len(), "webhook")))
}

async fn policies(client: &Client) -> Finding {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let remedy = "install them anew: kubectl apply -f manifests/install/policies.yaml";
    let names = croft_policy::policies::names();
    for name in &names {
        let policy = match api.get_opt(name).await {
            Ok(Some(policy)) => policy,
            Ok(None) => return trouble(format!("the policy {name} isn't there"), remedy),
            Err(error) => {
                return trouble(
                    format!("failed to read the policy {name}: {error}"),
                    "ask for the ClusterRole croft-view",
                );
            }
        };
        let odd: Vec<String> = policy
            .status
            .iter()
            .filter_map(|s| s.type_checking.as_ref())
            .flat_map(|t| t.expression_warnings.iter().flatten())
            .map(|w| w.warning.clone())
            .collect();
        if let Some(warning) = odd.first() {
            return trouble(format!("the API server finds fault with {name}: {warning}"), remedy);
        }
        match bindings.get_opt(name).await {
            Ok(Some(binding)) => {
                let actions = binding.spec.validation_actions;
                if !actions.iter().any(|a| a == "Deny") {
                    return trouble(format!("the binding {name} denies nothing"), remedy);
                }
            }
            Ok(None) => return trouble(format!("the policy {name} isn't bound"), remedy),
            Err(error) => {
                return trouble(
                    format!("failed to read the binding {name}: {error}"),
                    "ask for the ClusterRole croft-view",
                );
            }
        }
    }
    for name in OLD_POLICIES.split(' ') {
        match bindings.get_opt(name).await {
            Ok(None) => {}
            Ok(Some(_)) => {
                return trouble(
                    format!(
                        "the policy {name} of an earlier version of Croft is still there, and no process keeps it up to date"
                    ),
                    format!(
                        "delete it: kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings --ignore-not-found {OLD_POLICIES}"
                    ),
                );
            }
            Err(error) => {
                return trouble(
                    format!("failed to read the binding {name}: {error}"),
                    "ask for the ClusterRole croft-view",
                );
            }
        }
    }
    Ok(format!("{} in force", counted(names.len(), "policy").replace("policys", "policies")))
}

async fn ready<K: Kind>(client: &Client, conditions: impl Fn(&K) -> Option<Vec<Condition>>) -> Finding {
    let api: Api<Stored<K>> = Api::all(client.clone());
    let kind = K::kind(&()).into_owned();
    let items: Vec<K> = match api.list(&ListParams::default()).await {
        Ok(list) => list.items.into_iter().filter_map(Stored::legible).collect(),
        Err(error) => {
            return trouble(format!("failed to list them: {error}"), "ask for the ClusterRole croft-view");
        }
    };
    for object in &items {
        let name = object.name_any();
        let found = conditions(object).unwrap_or_default();
        if let Some(flaw) = found.iter().find(|c| c.reason == INVALID_SPEC && c.status == "False") {
            return trouble(format!("{kind} {name} isn't in force as it is ({INVALID_SPEC})"), &flaw.message);
        }
        match found.iter().find(|c| c.type_ == READY) {
            Some(condition) if condition.status == "True" => {}
            Some(condition) => {
                let mut words = condition.message.clone();
                // Ready rolls up: the condition below says what to do.
                let is_cause =
                    |c: &&Condition| c.status == "False" && ![READY, UNLIMITED].contains(&c.type_.as_str());
                if let Some(cause) = found.iter().find(is_cause) {
                    words = cause.message.clone();
                }
                return trouble(format!("{kind} {name} isn't ready ({})", condition.reason), words);
            }
            None => {
                return trouble(
                    format!("{kind} {name} has no status yet"),
                    "see that the controller leads; it writes the status",
                );
            }
        }
    }
    Ok(format!("{} ready", items.len()))
}

/// Does a limit bound what the nodes cost: of the cluster, of each Tenant, of each pool?
async fn limits(client: &Client) -> Finding {
    let all = ListParams::default();
    let listed = async {
        let tenants = Api::<Tenant>::all(client.clone()).list(&all).await?.items;
        let pools = Api::<TenantPool>::all(client.clone()).list(&all).await?.items;
        let config = Api::<CroftConfig>::all(client.clone()).get_opt(SINGLETON).await?;
        Ok::<_, kube::Error>((tenants, pools, config))
    };
    let (tenants, pools, config) = match listed.await {
        Ok(listed) => listed,
        Err(error) => {
            return trouble(format!("failed to list them: {error}"), "ask for the ClusterRole croft-view");
        }
    };
    let is_unlimited = |statement: Statement| statement.status == Some(true);
    let mut open: Vec<String> = Vec::new();
    for tenant in &tenants {
        let own = pools.iter().filter(|pool| tenant.spec.pools.contains(&pool.name_any()));
        if is_unlimited(unlimited::of_tenant(tenant, own)) {
            open.push(format!("Tenant {}", tenant.name_any()));
        }
    }
    for pool in pools.iter().filter(|pool| pool.spec.provisioner == Provisioner::Croft) {
        let name = pool.name_any();
        let naming = tenants.iter().filter(|tenant| tenant.spec.pools.contains(&name));
        if is_unlimited(unlimited::of_pool(pool, naming)) {
            open.push(format!("TenantPool {name}"));
        }
    }
    if !open.is_empty() {
        let within = match config {
            Some(config) if scheduler::bounds_cost(&config.spec.limits) => {
                "; one of them may use up the limits of the whole cluster, which the CroftConfig has"
            }
            _ => "",
        };
        return trouble(
            format!("nothing bounds what the nodes of {} cost{within}", shortened(&open, 5)),
            format!("{REMEDY} in each, or in the CroftConfig for the whole cluster"),
        );
    }
    Ok(format!("{} and {} have limits", counted(tenants.len(), "tenant"), counted(pools.len(), "pool")))
}
