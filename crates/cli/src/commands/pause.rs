//! `croft pause` and `croft resume`: no voluntary disruption of nodes starts, in one pool or in all, until it is resumed or the
//! time is over.
//!
//! The switch is a field: `spec.disruption.paused` of the TenantPool, or of the CroftConfig for all pools. So it is seen and edited
//! like any other setting, and the right to update these objects is the right to pause.

use std::{io::Write as _, process::ExitCode, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use croft_api::{CroftConfig, TenantPool, config::SINGLETON, duration, pause::Pause, stored::Stored};
use croft_runtime::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cluster_reader::list_all,
    failure::Failure,
    output::Output,
    own_objects::{is_absent, missing},
    source::ClusterArgs,
};

/// Whose nodes are meant.
#[derive(Args, Clone, Debug)]
#[group(id = "scope", required = true, multiple = false)]
struct Scope {
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// All pools
    #[arg(long)]
    all: bool,
}

/// Arguments of `croft pause`.
#[derive(Args, Clone, Debug)]
pub struct PauseArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    scope: Scope,
    /// How long, such as 2h. Default: until croft resume
    #[arg(long = "for", value_name = "DURATION", value_parser = pause_length)]
    lasts: Option<Duration>,
    /// Why, for those who find nodes that stay
    #[arg(long, value_name = "TEXT", value_parser = pause_reason)]
    reason: String,
}

/// Arguments of `croft resume`.
#[derive(Args, Clone, Debug)]
pub struct ResumeArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    scope: Scope,
}

fn pause_length(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Some(length)) if length >= Duration::from_secs(1) => Ok(length),
        Ok(_) => {
            Err("write how long, such as 2h, or leave --for out for a pause until croft resume".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn pause_reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("write why: others will wonder why nodes stay".to_owned()),
        reason if reason.chars().count() > 256 => Err("write at most 256 characters".to_owned()),
        reason => Ok(reason.to_owned()),
    }
}

/// Runs `croft pause`.
pub(crate) fn pause(args: &PauseArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let PauseArgs { cluster, scope, lasts, reason } = args;
    let pause = new_pause(SystemClock.wall(), *lasts, reason)?;
    cluster.run(async |client| {
        let until = pause.until.as_ref().map_or_else(
            || "until croft resume".to_owned(),
            |until| format!("until {until}"),
        );
        // `null` takes away the end of an earlier pause.
        let value = json!({"until": pause.until, "reason": pause.reason});
        match &scope.pool {
            Some(pool) => {
                set_of_pool(&client, pool, value).await?;
                writeln!(out, "voluntary disruption of pool {pool} is paused {until}")?;
            }
            None => {
                set_of_cluster(&client, value).await?;
                writeln!(out, "voluntary disruption is paused in all pools {until}")?;
            }
        }
        writeln!(
            out,
            "what began before ends or is rolled back; broken and interrupted nodes are still replaced\nif the object is kept in Git, \
             write disruption.paused there too"
        )?;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `croft resume`.
pub(crate) fn resume(args: &ResumeArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let ResumeArgs { cluster, scope } = args;
    cluster.run(async |client| {
        match &scope.pool {
            Some(pool) => {
                set_of_pool(&client, pool, Value::Null).await?;
                writeln!(out, "voluntary disruption of pool {pool} is resumed")?;
                if let Some(pause) =
                    pause_of_cluster(&client).await?.filter(|pause| pause.holds(SystemClock.wall()))
                {
                    let reason = &pause.reason;
                    writeln!(
                        out,
                        "it is still paused in all pools: {reason}\nresume there: croft resume --all"
                    )?;
                }
            }
            None => {
                if pause_of_cluster(&client).await?.is_some() {
                    set_of_cluster(&client, Value::Null).await?;
                }
                writeln!(out, "voluntary disruption is resumed in all pools without a pause of their own")?;
                for (pool, reason) in paused_pools(&client).await? {
                    writeln!(out, "pool {pool} is still paused: {reason}\nresume it: croft resume {pool}")?;
                }
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn new_pause(now: Timestamp, lasts: Option<Duration>, reason: &str) -> anyhow::Result<Pause> {
    let end = |lasts: Duration| {
        let end = SignedDuration::try_from(lasts).ok().and_then(|lasts| now.checked_add(lasts).ok());
        end.ok_or_else(|| anyhow!("--for is too long: leave it out for a pause until croft resume"))
    };
    let end = lasts.map(end).transpose()?;
    Ok(Pause {
        until: end.map(|end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        reason: reason.to_owned(),
    })
}

fn patch_of(paused: Value) -> Patch<Value> {
    Patch::Merge(json!({"spec": {"disruption": {"paused": paused}}}))
}

/// Where the pause is in the spec of either kind.
const PAUSED: &str = "/disruption/paused";

/// The pause of an object's spec, whether or not the rest of it can be decoded.
fn pause_in(spec: &Value) -> Option<Pause> {
    spec.pointer(PAUSED).and_then(|paused| serde_json::from_value(paused.clone()).ok())
}

/// Fails if the API server answered a pause with a spec that has none: it drops fields that its CRD doesn't know, and says nothing.
fn check_kept(kind: &str, asked: &Value, stored: &Value) -> anyhow::Result<()> {
    if asked.is_null() || stored.pointer(PAUSED).is_some_and(|paused| !paused.is_null()) {
        return Ok(());
    }
    bail!(
        "nothing is paused: the CRD of {kind} is older than this croft and dropped spec.disruption.paused: upgrade croft-crds first"
    )
}

async fn set_of_pool(client: &Client, pool: &str, paused: Value) -> anyhow::Result<()> {
    let pools: Api<Stored<TenantPool>> = Api::all(client.clone());
    match pools.patch(pool, &PatchParams::default(), &patch_of(paused.clone())).await {
        Ok(stored) => check_kept("TenantPool", &paused, &stored.spec()),
        Err(error) if is_absent(&error) => Err(missing::<TenantPool>(client, pool).await),
        Err(error) => Err(error).with_context(|| format!("failed to update the TenantPool {pool}")),
    }
}

async fn set_of_cluster(client: &Client, paused: Value) -> anyhow::Result<()> {
    let configs: Api<Stored<CroftConfig>> = Api::all(client.clone());
    match configs.patch(SINGLETON, &PatchParams::default(), &patch_of(paused.clone())).await {
        Ok(stored) => return check_kept("CroftConfig", &paused, &stored.spec()),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error).context("failed to update the CroftConfig"),
    }
    // Absent means its defaults.
    let new: CroftConfig = serde_json::from_value(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": SINGLETON},
        "spec": {"disruption": {"paused": paused}},
    }))?;
    let configs: Api<CroftConfig> = Api::all(client.clone());
    let created =
        configs.create(&PostParams::default(), &new).await.context("failed to create the CroftConfig")?;
    check_kept("CroftConfig", &paused, &json!({"disruption": {"paused": created.spec.disruption.paused}}))
}

async fn pause_of_cluster(client: &Client) -> anyhow::Result<Option<Pause>> {
    let configs: Api<Stored<CroftConfig>> = Api::all(client.clone());
    let config = configs.get_opt(SINGLETON).await.context("failed to read the CroftConfig")?;
    Ok(config.and_then(|config| pause_in(&config.spec())))
}

/// The pools that have a pause of their own, and its reason.
async fn paused_pools(client: &Client) -> anyhow::Result<Vec<(String, String)>> {
    let now = SystemClock.wall();
    let pools = list_all::<Stored<TenantPool>>(client).await?;
    let paused = pools.iter().filter_map(|pool| {
        let pause = pause_in(&pool.spec()).filter(|pause| pause.holds(now))?;
        Some((pool.name_any(), pause.reason))
    });
    Ok(paused.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_for_a_time_has_an_end_that_the_schema_takes() {
        let now: Timestamp = "2026-12-31T16:00:00.123Z".parse().unwrap();
        let pause = new_pause(now, Some(Duration::from_secs(7_200)), "a release").unwrap();
        assert_eq!(pause.until.as_deref(), Some("2026-12-31T18:00:00Z"));
        assert!(pause.holds(now));
        assert_eq!(new_pause(now, None, "an incident").unwrap().until, None);
        assert!(new_pause(now, Some(Duration::MAX), "r").is_err());
    }

    #[test]
    fn lengths_and_reasons_that_say_nothing_are_refused() {
        for text in ["Never", "0s", "soon"] {
            assert!(pause_length(text).is_err(), "{text}");
        }
        assert_eq!(pause_length("1h30m"), Ok(Duration::from_secs(5_400)));
        assert!(pause_reason("  ").is_err() && pause_reason(&"x".repeat(300)).is_err());
        assert_eq!(pause_reason(" a release "), Ok("a release".to_owned()));
        assert!(pause_reason(&"é".repeat(256)).is_ok(), "characters are counted, not bytes");
    }

    #[test]
    fn a_pause_that_an_older_crd_dropped_is_an_error() {
        let asked = json!({"until": null, "reason": "a release"});
        let error = check_kept("TenantPool", &asked, &json!({"disruption": {}})).unwrap_err().to_string();
        assert!(error.contains("the CRD of TenantPool is older than this croft"), "{error}");
        assert!(
            check_kept("TenantPool", &asked, &json!({"disruption": {"paused": {"reason": "x"}}})).is_ok()
        );
        assert!(check_kept("TenantPool", &Value::Null, &json!({})).is_ok(), "a pause that is taken away");
    }

    #[test]
    fn the_pause_of_an_object_that_can_not_be_decoded_is_found() {
        let spec = json!({"weight": "many", "disruption": {"paused": {"reason": "a release"}}});
        assert_eq!(pause_in(&spec).map(|pause| pause.reason).as_deref(), Some("a release"));
        assert_eq!(pause_in(&json!({"disruption": {"paused": null}})), None);
    }
}
