//! `croft audit`: placement violations in the cluster or in files.
//!
//! The cluster is read once; no part of Croft has to run. The rules are those of the webhook; `networks` compares the
//! NetworkPolicies of isolated tenants with what their Tenants declare.

mod networks;

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use croft_api::{
    CroftConfig, Tenant, TenantPool, config::SINGLETON, convert::policy as convert, stored::Stored,
};
use croft_inspect::{inventory::recreation, simulation::is_created, workload::is_active};
use croft_manifest::Input;
use croft_policy::{
    Tenants,
    audit::{self, Finding},
    model::{self, DEFAULT_NAMESPACE},
    stored,
};
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Namespace, Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde::Serialize;

use self::networks::Networks;
use crate::{
    cluster_reader::list_all,
    failure::Failure,
    output::{Format, Output},
    source::{ClusterArgs, load_files},
    table::{BAD, BOLD, GOOD, NAME, Table, counted},
};

/// Arguments of `croft audit`.
#[derive(Args, Clone, Debug)]
pub struct AuditArgs {
    /// Audit these files, folders or - (standard input) instead of the cluster; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// One violation as JSON.
#[derive(Debug, Serialize)]
struct Printed<'f> {
    rule: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'f str>,
    name: &'f str,
    tenants: &'f [String],
    message: &'f str,
}

/// Everything that is audited.
struct Facts {
    tenants: Vec<model::Tenant>,
    pools: Vec<model::Pool>,
    config: model::Config,
    namespaces: Vec<Namespace>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    daemonsets: Vec<DaemonSet>,
    networks: Networks,
    /// True for a cluster, where the controller's annotations are required; files don't have them.
    in_cluster: bool,
}

/// Runs the command. The exit code is 1 if there are violations.
///
/// # Errors
/// If the input or the cluster can't be read, or the result can't be written.
pub(crate) fn run(args: &AuditArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let AuditArgs { filenames, output, cluster } = args;
    let facts = if filenames.is_empty() {
        cluster.run(Facts::in_cluster)?
    } else {
        Facts::in_files(&load_files(filenames, cluster.namespace_of_files(), out)?)?
    };
    let (mut findings, pods) = find_violations(&facts)?;
    let only = cluster.named_namespace().filter(|_| filenames.is_empty());
    if let Some(namespace) = only {
        let names: Vec<String> = facts.namespaces.iter().map(|one| one.name_any()).collect();
        if !names.iter().any(|name| name == namespace) {
            return Err(Failure::missing("namespace", namespace, names.iter().map(String::as_str)));
        }
        findings.retain(|finding| {
            finding.namespace.as_deref() == Some(namespace)
                || (finding.kind == "Namespace" && finding.name == namespace)
        });
    }
    match output {
        Format::Json => {
            let printed: Vec<Printed<'_>> = findings.iter().map(Printed::of).collect();
            out.json(&printed)?;
        }
        Format::Text => match only {
            Some(namespace) if findings.is_empty() => {
                writeln!(out, "{GOOD}nothing found{GOOD:#} in namespace {namespace}")?;
            }
            _ => print(&findings, &facts, pods, out)?,
        },
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl<'f> Printed<'f> {
    fn of(finding: &'f Finding) -> Self {
        Self {
            rule: finding.violation.as_str(),
            kind: finding.kind,
            namespace: finding.namespace.as_deref(),
            name: &finding.name,
            tenants: &finding.tenants,
            message: &finding.message,
        }
    }
}

/// Every violation, and the number of audited pods.
fn find_violations(facts: &Facts) -> anyhow::Result<(Vec<Finding>, usize)> {
    let index = Tenants::offline(
        facts.config.clone(),
        facts.tenants.clone(),
        facts.pools.clone(),
        facts.namespaces.iter().map(|n| convert::namespace(&n.metadata)).collect(),
        facts.nodes.iter().map(convert::node).collect(),
    );
    let mut findings = audit::declarations(&index);
    for namespace in facts.namespaces.iter().filter(|n| n.metadata.deletion_timestamp.is_none()) {
        let (labels, annotations) = (namespace.labels(), namespace.annotations());
        findings.extend(audit::namespace(
            &index,
            &namespace.name_any(),
            labels,
            annotations,
            facts.in_cluster,
        ));
    }
    for daemonset in facts.daemonsets.iter().filter(|d| d.metadata.deletion_timestamp.is_none()) {
        let namespace = daemonset.namespace().unwrap_or_default();
        let planned = convert::daemonset(daemonset);
        findings.extend(audit::daemonset(&index, &namespace, &daemonset.name_any(), &planned));
    }
    for node in &facts.nodes {
        findings.extend(audit::node(&index, &convert::node(node)));
    }
    findings.extend(facts.networks.open(&index, &facts.namespaces));
    let mut audited = 0;
    for pod in facts.pods.iter().filter(|p| is_active(p)) {
        audited += 1;
        let namespace = pod.namespace().unwrap_or_default();
        findings.extend(audit::pod(&index, &namespace, &convert::pod(pod), recreation(pod)));
    }
    findings.sort();
    Ok((findings, audited))
}

impl Facts {
    fn in_files(input: &Input) -> anyhow::Result<Self> {
        let tenants = input.tenants.iter().map(|t| convert::tenant(&t.object)).collect::<Result<_, _>>()?;
        Ok(Self {
            tenants,
            pools: croft_inspect::admission::pools(input),
            config: input
                .configs
                .first()
                .map(|c| convert::config(&c.spec, DEFAULT_NAMESPACE))
                .unwrap_or_default(),
            namespaces: input.namespaces.iter().map(|n| n.object.clone()).collect(),
            nodes: input.nodes.iter().map(|n| n.object.clone()).collect(),
            // A pod that is yet to be created gets its place by admission: croft plan shows it.
            pods: input.pods.iter().filter(|pod| is_created(pod)).map(|p| p.object.clone()).collect(),
            daemonsets: input.daemon_sets.iter().map(|d| d.object.clone()).collect(),
            networks: Networks::default(),
            in_cluster: false,
        })
    }

    async fn in_cluster(client: Client) -> anyhow::Result<Self> {
        // Decoded one by one, as in the webhook: an object that can't be decoded hides no other.
        let created = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|time| time.0.as_second());
        let config: Api<Stored<CroftConfig>> = Api::all(client.clone());
        let config = config.get_opt(SINGLETON).await.context("failed to read the CroftConfig default")?;
        let tenants = list_all::<Stored<Tenant>>(&client).await?;
        let networks = Networks::read(&client, &tenants).await?;
        let tenants =
            tenants.iter().map(|t| stored::tenant(t.name_any(), created(t.meta()), &t.spec()).object);
        let pools = list_all::<Stored<TenantPool>>(&client).await?;
        let pools =
            pools.iter().map(|p| stored::pool(p.name_any(), created(p.meta()), &p.spec(), &p.status()));
        Ok(Self {
            tenants: tenants.collect(),
            pools: pools.filter(|pool| pool.error.is_none()).map(|pool| pool.object).collect(),
            config: config
                .map(|config| stored::config(&config.spec(), DEFAULT_NAMESPACE).object)
                .unwrap_or_default(),
            namespaces: list_all(&client).await?,
            nodes: list_all(&client).await?,
            pods: list_all(&client).await?,
            daemonsets: list_all(&client).await?,
            networks,
            in_cluster: true,
        })
    }
}

fn print(findings: &[Finding], facts: &Facts, pods: usize, out: &mut Output) -> Result<(), Failure> {
    let audited = format!(
        "{}, {} and {}",
        counted(facts.tenants.len(), "tenant"),
        counted(facts.nodes.len(), "node"),
        counted(pods, "pod")
    );
    if findings.is_empty() {
        writeln!(out, "{GOOD}nothing found{GOOD:#}: placement ok for {audited}")?;
        return Ok(());
    }
    let mut table = Table::new("RULE|TENANT|OBJECT");
    for finding in findings {
        let object = match &finding.namespace {
            Some(namespace) => format!("{} {namespace}/{}", finding.kind, finding.name),
            None => format!("{} {}", finding.kind, finding.name),
        };
        let tenants = if finding.tenants.is_empty() { "-".to_owned() } else { finding.tenants.join(",") };
        table.styled(vec![(finding.violation.to_string(), BAD), (tenants, NAME), (object, BOLD)]);
    }
    table.write(out)?;
    writeln!(out)?;
    for finding in findings {
        let name =
            finding.namespace.iter().chain([&finding.name]).map(String::as_str).collect::<Vec<_>>().join("/");
        writeln!(out, "{BOLD}{} {name}{BOLD:#}: {}", finding.kind, finding.message)?;
    }
    writeln!(out, "\n{BAD}{}{BAD:#} in {audited}", counted(findings.len(), "violation"))?;
    Ok(())
}
