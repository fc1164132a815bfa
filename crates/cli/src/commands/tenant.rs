//! `croft tenant`: adds or removes a tenant, as manifests or in the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use croft_api::{EC2NodeClass, Tenant, TenantPool, stored::Kind};
use croft_manifest::{InputError, object_name, prune, to_yaml};
use croft_scheduler::Quantity;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    croft_object::{croft_object, text},
    failure::Failure,
    output::Output,
    own_objects::{is_absent, missing, not_installed, served_names},
    source::ClusterArgs,
    table::{BAD, GOOD, NOTE, shortened},
};

/// Field manager of applied manifests.
const MANAGER: &str = "croft-cli";

/// Limits of a tenant that is added without limits: enough for a first deployment, and at most $240 a day.
const DEFAULT_LIMITS: [(&str, &str); 2] = [("costPerHour", "10"), ("nodes", "20")];

/// Arguments of `croft tenant`.
#[derive(Args, Clone, Debug)]
pub struct TenantArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Give a tenant its namespaces and pools: prints the manifests, or applies them
    Add(AddArgs),
    /// Remove a tenant; its pools are kept unless --pools is given, its pods stay on their nodes
    Remove(RemoveArgs),
}

#[derive(Args, Clone, Debug)]
struct AddArgs {
    /// The tenant's name
    #[arg(value_parser = name)]
    name: String,
    /// Namespaces that belong to it, separated by commas [default: the tenant's name]
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = name)]
    namespaces: Vec<String>,
    /// Namespaces with this label belong to it too; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    selector: Vec<(String, String)>,
    /// A pool that it may use, the default first; may be given more than once [default: one with the tenant's name, which --class creates]
    #[arg(long = "pool", value_name = "POOL", value_parser = name)]
    pools: Vec<String>,
    /// Create the pools too, with instances of this EC2NodeClass
    #[arg(long, value_name = "NAME", value_parser = name)]
    class: Option<String>,
    /// Label and taint key of created pools
    #[arg(long, value_name = "KEY", default_value = croft_api::pool::DEFAULT_KEY, requires = "class")]
    key: String,
    /// Action on a pod that asks for another pool
    #[arg(long, value_enum, default_value_t = OnConflict::Reject)]
    on_conflict: OnConflict,
    /// A limit over all its pools, such as cpu=100 or costPerHour=25; may be given more than once [default: nodes=20 and
    /// costPerHour=10, in dollars]
    #[arg(long = "limit", value_name = "RESOURCE=AMOUNT", value_parser = limit)]
    limits: Vec<(String, String)>,
    /// Write no limit: nothing bounds what the tenant's nodes cost but the limits of its pools and of the cluster
    #[arg(long, conflicts_with = "limits")]
    unlimited: bool,
    /// Apply the manifests to the cluster instead of printing them; what is there already is only changed with --replace
    #[arg(long)]
    apply: bool,
    /// With --apply: change the Tenant, and pools of --class, that are there already
    #[arg(long, requires = "apply")]
    replace: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnConflict {
    /// The pod is denied
    Reject,
    /// The pod is placed in an allowed pool
    Override,
}

#[derive(Args, Clone, Debug)]
struct RemoveArgs {
    /// The tenant's name
    name: String,
    /// Delete the pools that no other tenant names, too; Croft drains their nodes first
    #[arg(long)]
    pools: bool,
    /// Do it; without this flag the command only prints what it would do
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE".to_owned()),
    }
}

/// The name of an object.
fn name(text: &str) -> Result<String, String> {
    object_name(text).map(|()| text.to_owned())
}

/// A resource and its amount.
fn limit(text: &str) -> Result<(String, String), String> {
    let (resource, amount) = text
        .split_once('=')
        .filter(|(resource, _)| !resource.is_empty())
        .ok_or("write a resource and its amount, such as cpu=100")?;
    if amount.parse::<Quantity>().is_ok_and(|parsed| !parsed.is_negative()) {
        return Ok((resource.to_owned(), amount.to_owned()));
    }
    Err(format!(
        "{amount:?} is no amount of {resource}: write a number that isn't negative, with an optional suffix, such as 500m, 100 or 64Gi"
    ))
}

/// Runs the command.
pub(crate) fn run(args: &TenantArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    match &args.what {
        What::Add(args) => add(args, out),
        What::Remove(args) => remove(args, out).map(|()| ExitCode::SUCCESS),
    }
}

fn add(args: &AddArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let manifests = manifests(args)?;
    if !args.apply {
        write!(out, "{}", to_yaml(&manifests)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let code = args.cluster.run(async |client| {
        exist(&client, args).await?;
        let mut changes = Vec::new();
        for manifest in &manifests {
            changes.extend(match text(manifest, "kind") {
                "Tenant" => changes_of::<Tenant>(&client, manifest).await?,
                _ => changes_of::<TenantPool>(&client, manifest).await?,
            });
        }
        for change in &changes {
            writeln!(out, "{change}")?;
        }
        if !changes.is_empty() && !args.replace {
            writeln!(out, "{BAD}nothing was applied{BAD:#}: --replace makes these changes")?;
            return Ok(ExitCode::FAILURE);
        }
        for manifest in &manifests {
            match text(manifest, "kind") {
                "Tenant" => drop(apply::<Tenant>(&client, manifest, args.replace, false).await?),
                _ => drop(apply::<TenantPool>(&client, manifest, args.replace, false).await?),
            }
            writeln!(out, "{GOOD}applied{GOOD:#} {} {}", text(manifest, "kind"), name_of(manifest))?;
        }
        Ok(ExitCode::SUCCESS)
    })?;
    Ok(code)
}

/// The EC2NodeClass that pools are created with exists, or else the pools that are named.
async fn exist(client: &Client, args: &AddArgs) -> anyhow::Result<()> {
    match &args.class {
        Some(class) => all_exist::<EC2NodeClass>(client, std::slice::from_ref(class), "--class").await,
        None => all_exist::<TenantPool>(client, &args.pools, "--pool").await,
    }
}

async fn all_exist<K: Kind>(client: &Client, named: &[String], argument: &str) -> anyhow::Result<()> {
    let there = served_names::<K>(client).await?;
    let kind = K::kind(&());
    let missing: Vec<String> = named.iter().filter(|name| !there.contains(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let choice = if there.is_empty() {
        "the cluster has none: apply it first".to_owned()
    } else {
        format!("write one of {} for {argument}, or apply it first", shortened(&there, 10))
    };
    Err(InputError::Other(format!("there is no {kind} {}: {choice}", missing.join(", "))).into())
}

/// The pools, then the tenant: pods of a tenant whose pool doesn't exist are denied.
fn manifests(args: &AddArgs) -> Result<Vec<Value>, InputError> {
    let AddArgs {
        name,
        namespaces,
        selector,
        pools,
        class,
        key,
        on_conflict,
        limits,
        unlimited,
        apply: _,
        replace: _,
        cluster: _,
    } = args;
    let mut manifests = Vec::new();
    let pools = if pools.is_empty() { vec![name.clone()] } else { pools.clone() };
    if let Some(class) = class {
        for pool in &pools {
            let spec = json!({"key": key, "template": {"spec": {"nodeClassRef": {"name": class}}}});
            manifests.push(croft_object("TenantPool", pool, spec));
        }
    } else if args.pools.is_empty() {
        return Err(InputError::Other(format!(
            "the tenant needs a pool: name an existing one with --pool, or create {name} with --class and the name of an EC2NodeClass"
        )));
    }
    let mut spec = Map::new();
    if !namespaces.is_empty() || selector.is_empty() {
        let own = std::slice::from_ref(name);
        spec.insert("namespaces".to_owned(), json!(if namespaces.is_empty() { own } else { namespaces }));
    }
    if !selector.is_empty() {
        let labels: BTreeMap<&String, &String> = selector.iter().map(|(k, v)| (k, v)).collect();
        spec.insert("namespaceSelector".to_owned(), json!({ "matchLabels": labels }));
    }
    spec.insert("pools".to_owned(), json!(pools));
    if *on_conflict == OnConflict::Override {
        spec.insert("onConflict".to_owned(), json!("Override"));
    }
    if !unlimited {
        let given = limits.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let limits: BTreeMap<&str, &str> =
            if limits.is_empty() { DEFAULT_LIMITS.into() } else { given.collect() };
        spec.insert("limits".to_owned(), json!(limits));
    }
    manifests.push(croft_object("Tenant", name, Value::Object(spec)));
    let mut mistakes: Vec<String> = Vec::new();
    for manifest in &mut manifests {
        let kind = text(manifest, "kind").to_owned();
        let pruned = prune(&kind, manifest);
        let named = name_of(manifest).to_owned();
        let said = pruned.errors.iter().map(|(path, message)| format!("{kind} {named}: {path}: {message}"));
        mistakes.extend(said);
    }
    if mistakes.is_empty() { Ok(manifests) } else { Err(InputError::Other(mistakes.join("\n"))) }
}

fn name_of(manifest: &Value) -> &str {
    manifest.get("metadata").map_or("", |meta| text(meta, "name"))
}

/// The fields of the spec that applying the manifest would change, a line each; none if there is no such object.
async fn changes_of<K>(client: &Client, manifest: &Value) -> anyhow::Result<Vec<String>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let (kind, name) = (K::kind(&()), name_of(manifest));
    let found = Api::<K>::all(client.clone()).get_opt(name).await;
    let Some(found) = found.with_context(|| format!("failed to read {kind} {name}"))? else {
        return Ok(Vec::new());
    };
    let spec = |object: &K| -> anyhow::Result<Map<String, Value>> {
        let object = serde_json::to_value(object)?;
        Ok(object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default())
    };
    let (before, after) = (spec(&found)?, spec(&apply::<K>(client, manifest, true, true).await?)?);
    let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let differing = fields.into_iter().filter(|field| before.get(*field) != after.get(*field));
    let line = |field: &String| {
        format!(
            "{kind} {name}: spec.{field}: {} becomes {}",
            shown(before.get(field)),
            shown(after.get(field))
        )
    };
    Ok(differing.map(line).collect())
}

/// Applies the manifest, or sees what would be stored. With `replace`, also fields that were written by others, such as `kubectl apply`;
/// without it, a field of theirs that differs is an error.
async fn apply<K>(client: &Client, manifest: &Value, replace: bool, dry_run: bool) -> anyhow::Result<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = name_of(manifest);
    let api: Api<K> = Api::all(client.clone());
    let params = PatchParams { dry_run, force: replace, ..PatchParams::apply(MANAGER) };
    let applied = api.patch(name, &params, &Patch::Apply(manifest)).await;
    applied.with_context(|| format!("failed to apply {} {name}", K::kind(&())))
}

fn remove(args: &RemoveArgs, out: &mut Output) -> Result<(), Failure> {
    let RemoveArgs { name, pools, apply, cluster } = args;
    cluster.run(async |client| {
        let tenants: Api<Tenant> = Api::all(client.clone());
        let all = match tenants.list(&ListParams::default()).await {
            Err(error) if is_absent(&error) => return Err(not_installed()),
            listed => listed.context("failed to list the tenants")?.items,
        };
        let Some(tenant) = all.iter().find(|t| t.name_any() == *name) else {
            return Err(missing::<Tenant>(&client, name).await);
        };
        let known: Api<TenantPool> = Api::all(client.clone());
        let known = known.list(&ListParams::default()).await.context("failed to list the pools")?.items;
        let is_for_many =
            |name: &String| known.iter().any(|pool| pool.spec.per_tenant && pool.name_any() == *name);
        let (for_many, own): (Vec<&String>, Vec<&String>) = tenant.spec.pools.iter().partition(|name| is_for_many(name));
        let only_its: Vec<&String> = own
            .into_iter()
            .filter(|pool| !all.iter().any(|t| t.name_any() != *name && t.spec.pools.contains(pool)))
            .collect();
        let verb = if *apply { "deleted" } else { "would be deleted" };
        if *apply {
            tenants
                .delete(name, &DeleteParams::default())
                .await
                .with_context(|| format!("failed to delete the Tenant {name}"))?;
        }
        writeln!(out, "Tenant {name} {verb}: its namespaces belong to no tenant any more; its pods stay on their nodes, and `croft audit` shows them")?;
        let namespaces = tenant.status.as_ref().map(|s| s.namespaces.clone()).unwrap_or_default();
        if !namespaces.is_empty() {
            writeln!(out, "  namespaces: {}", shortened(&namespaces, 10))?;
        }
        for pool in for_many {
            writeln!(out, "TenantPool {pool} is kept: it is for many tenants; the nodes of this one are drained and removed")?;
        }
        for pool in only_its {
            if !pools {
                writeln!(out, "{NOTE}TenantPool {pool} is kept{NOTE:#}: no tenant uses it any more; --pools deletes it")?;
                continue;
            }
            if *apply {
                let api: Api<TenantPool> = Api::all(client.clone());
                let deleted = api.delete(pool, &DeleteParams::default()).await;
                deleted.with_context(|| format!("failed to delete the TenantPool {pool}"))?;
            }
            writeln!(
                out,
                "TenantPool {pool} {verb}: the nodes that Croft launched are drained and removed first; others stay, with their pods"
            )?;
        }
        if !apply {
            writeln!(out, "nothing was changed: --apply makes these changes")?;
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_limit_names_resource_and_amount() {
        for wrong in ["cpu=lots", "cpu=-1", "cpu="] {
            let amount = wrong.split_once('=').unwrap().1;
            let error = limit(wrong).unwrap_err();
            assert!(error.starts_with(&format!("{amount:?} is no amount of cpu")), "{error}");
        }
        assert_eq!(limit("costPerHour=2.5"), Ok(("costPerHour".to_owned(), "2.5".to_owned())));
        assert!(limit("cpu").unwrap_err().contains("cpu=100"));
    }
}
