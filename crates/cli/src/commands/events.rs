//! `croft events`: the Events that Croft writes, once or as they come.

use std::{collections::BTreeMap, io::Write as _, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    ClusterResourceScope,
    api::{
        core::v1::{Namespace, Node, Pod},
        events::v1::Event,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;

use crate::{
    failure::{Failure, told},
    output::{Format, Output},
    own_events::{CONTROLLER, is_possible},
    shown::one_line,
    source::ClusterArgs,
    table::{NAME, NOTE},
};

/// Arguments of `croft events`.
#[derive(Args, Clone, Debug)]
pub struct EventsArgs {
    /// Go on with each new Event, until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Only Events about this object, as Kind/name
    #[arg(long, value_name = "KIND/NAME", value_parser = about)]
    about: Option<String>,
    /// How to print it; json has an object a line
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The kinds that Croft writes Events about.
const KINDS: [&str; 8] =
    ["Pod", "Node", "NodeClaim", "Tenant", "TenantPool", "EC2NodeClass", "CroftConfig", "Namespace"];

/// A kind in any case, and a name.
fn about(text: &str) -> Result<String, String> {
    let (kind, name) = text
        .split_once('/')
        .filter(|(_, name)| !name.is_empty() && !name.contains('/'))
        .ok_or("write a kind and a name, such as Pod/web, and the namespace by --namespace")?;
    match KINDS.iter().find(|known| known.eq_ignore_ascii_case(kind)) {
        Some(known) => Ok(format!("{known}/{name}")),
        None => Err(format!("Croft writes no Events about a {kind}: write one of {}", KINDS.join(", "))),
    }
}

/// Runs the command.
pub(crate) fn run(args: &EventsArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    args.cluster.run(async |client| show(&client, args, out).await)?;
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &Client, args: &EventsArgs, out: &mut Output) -> anyhow::Result<()> {
    let api: Api<Event> = match args.cluster.named_namespace() {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let fields = format!("reportingController={CONTROLLER}");
    let list = api.list(&ListParams::default().fields(&fields)).await.context("failed to list Events")?;
    let mut events: Vec<Event> = list.items;
    events.sort_by_key(time);
    // The version of each Event that was shown: a watch that begins again has them all once more.
    let mut shown = BTreeMap::new();
    let mut is_found = false;
    for event in events {
        is_found |= args.about.as_ref().is_some_and(|about| *about == object(&event));
        show_new(&event, args, &mut shown, out)?;
    }
    if let Some(about) = args.about.as_ref().filter(|_| !is_found) {
        // A reader of Events need not be one of the object, and who watches may wait for it to be created.
        if !args.watch && matches!(exists(client, about, args.cluster.named_namespace()).await, Ok(false)) {
            let within = args.cluster.named_namespace().map(|name| format!(" in {name}")).unwrap_or_default();
            bail!("there is no {about}{within}, and no Event about it");
        }
        out.warn(&[format!(
            "no Event of Croft's is about {about}; the API server keeps Events for an hour"
        )])?;
    }
    out.flush()?;
    if !args.watch {
        return Ok(());
    }
    let config = watcher::Config::default().fields(&fields);
    let mut news = watcher(api, config).default_backoff().boxed();
    loop {
        let event = tokio::select! {
            event = news.try_next() => event,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        match event {
            Ok(Some(watcher::Event::Apply(event) | watcher::Event::InitApply(event))) => {
                show_new(&event, args, &mut shown, out)?;
                out.flush()?;
            }
            Ok(Some(watcher::Event::Delete(event))) => {
                shown.remove(&event.metadata.uid);
            }
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
            Ok(None) => return Ok(()),
            Err(error) => {
                out.warn(&[format!("the watch of Events ended, and begins again: {}", told(&error.into()))])?;
            }
        }
    }
}

/// True if there is such an object; a pod in any namespace, unless one is given.
async fn exists(client: &Client, about: &str, namespace: Option<&str>) -> anyhow::Result<bool> {
    let (kind, name) = about.split_once('/').unwrap_or((about, ""));
    match kind {
        "Pod" => {
            let pods: Api<Pod> = match namespace {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            let found = pods.list_metadata(&named).await.context("failed to list pods")?;
            Ok(!found.items.is_empty())
        }
        "Node" => has::<Node>(client, name).await,
        "Namespace" => has::<Namespace>(client, name).await,
        "NodeClaim" => has::<NodeClaim>(client, name).await,
        "Tenant" => has::<Tenant>(client, name).await,
        "TenantPool" => has::<TenantPool>(client, name).await,
        "EC2NodeClass" => has::<EC2NodeClass>(client, name).await,
        _ => has::<CroftConfig>(client, name).await,
    }
}

/// True if the cluster has an object of this name.
async fn has<K>(client: &Client, name: &str) -> anyhow::Result<bool>
where
    K: kube::Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let found = Api::<K>::all(client.clone()).get_metadata_opt(name).await;
    Ok(found.with_context(|| format!("failed to read {} {name}", K::kind(&())))?.is_some())
}

/// Writes an Event that is asked for and hasn't been written in this version.
fn show_new(
    event: &Event,
    args: &EventsArgs,
    shown: &mut BTreeMap<Option<String>, Option<String>>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let version = event.metadata.resource_version.clone();
    let is_new = shown.insert(event.metadata.uid.clone(), version.clone()) != Some(version);
    if !is_new || args.about.as_ref().is_some_and(|about| *about != object(event)) {
        return Ok(());
    }
    if !is_possible(event) {
        out.warn(&[forged(event)])?;
        return Ok(());
    }
    write(event, args.output, out)
}

/// A message about an Event that others wrote in Croft's name.
fn forged(event: &Event) -> String {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let name = event.metadata.name.as_deref().unwrap_or_default();
    format!(
        "left out: Event {name} in namespace {namespace} says that it is Croft's and about {}, and Croft writes Events about pods alone \
         there: see who may create Events in {namespace}",
        one_line(&object(event))
    )
}

/// The time of the Event's last occurrence.
fn time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    series.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

/// The object that the Event is about, as Kind/name.
fn object(event: &Event) -> String {
    let regarding = event.regarding.as_ref();
    let kind = regarding.and_then(|object| object.kind.as_deref()).unwrap_or_default();
    let name = regarding.and_then(|object| object.name.as_deref()).unwrap_or_default();
    format!("{kind}/{name}")
}

fn write(event: &Event, format: Format, out: &mut Output) -> anyhow::Result<()> {
    if format == Format::Json {
        writeln!(out, "{}", serde_json::to_string(event)?)?;
        return Ok(());
    }
    let at = time(event).map(|time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()).unwrap_or_default();
    let regarding = event.regarding.as_ref();
    let namespace = regarding.and_then(|object| object.namespace.as_deref()).unwrap_or_default();
    let within = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
    let is_warning = event.type_.as_deref() == Some("Warning");
    let reason = one_line(event.reason.as_deref().unwrap_or_default());
    let reason = if is_warning { format!("{NOTE}{reason}{NOTE:#}") } else { reason.into_owned() };
    let note = one_line(event.note.as_deref().unwrap_or_default());
    writeln!(out, "{at}  {NAME}{}{NAME:#}{within}  {reason}: {note}", one_line(&object(event)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::output::Written;

    /// Standard output and standard error of an Event in bravo.
    fn shown(regarding: &Value, note: &str, format: Format) -> (String, String) {
        let event: Event = serde_json::from_value(json!({
            "metadata": {"name": "e", "namespace": "bravo", "uid": "u", "resourceVersion": "1"},
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": CONTROLLER,
            "regarding": regarding, "reason": "Nominated", "note": note, "type": "Normal",
        }))
        .unwrap();
        let cluster = ClusterArgs::default();
        let args = EventsArgs { watch: false, about: None, output: format, cluster };
        let (out, err) = (Written::default(), Written::default());
        let mut output = Output::to(Box::new(out.clone()), Box::new(err.clone()));
        show_new(&event, &args, &mut BTreeMap::new(), &mut output).unwrap();
        (out.text(), err.text())
    }

    #[test]
    fn object_of_about_is_a_known_kind_and_a_name() {
        assert_eq!(about("nodeclaim/a"), Ok("NodeClaim/a".to_owned()));
        assert_eq!(about("Pod/web-1"), Ok("Pod/web-1".to_owned()));
        for wrong in ["web", "Pod/", "Pod/a/b"] {
            assert!(about(wrong).unwrap_err().contains("such as Pod/web"), "{wrong}");
        }
        assert!(about("Service/web").unwrap_err().contains("write one of Pod, Node"));
    }

    #[test]
    fn note_with_control_characters_and_a_second_line_is_one_line_of_text() {
        let pod = json!({"kind": "Pod", "name": "web", "namespace": "bravo"});
        let note = "x\u{1b}[2J\n2026-01-02 03:04:05Z  Node/other  Empty: gone";
        let (out, err) = shown(&pod, note, Format::Text);
        let line = "2026-01-02 03:04:05Z  Pod/web in bravo  Nominated: x\\u001b[2J\\n2026-01-02 03:04:05Z  Node/other  Empty: gone\n";
        assert_eq!((out.as_str(), err.as_str()), (line, ""));
    }

    #[test]
    fn event_about_a_node_in_a_tenants_namespace_is_left_out_and_said() {
        let node = json!({"kind": "Node", "name": "ip-10-0-0-1", "namespace": "bravo"});
        for format in [Format::Text, Format::Json] {
            let (out, err) = shown(&node, "it goes", format);
            assert_eq!(out, "");
            assert!(err.contains("Event e in namespace bravo") && err.contains("Node/ip-10-0-0-1"), "{err}");
        }
    }
}
