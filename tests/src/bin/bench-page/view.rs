//! Measurements in the browser.

use std::time::Duration;

use anyhow::Context as _;
use croft_testkit::{Browser, CroftOptions};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinHandle};

use crate::fill::{NODES, node_name};

const FIRST_VIEWS: usize = 5;
const EVENTS: usize = 10;
/// Between two changes of nodes while views are scrolled.
const CHANGES: Duration = Duration::from_millis(100);
/// The page with the most nodes and pods, and the parts that scroll on it.
const SCROLLED: [(&str, &str); 6] = [
    ("", "html"),
    ("curves", "html"),
    ("pools/pool-00", "html"),
    ("pools/pool-00", ".scroll[aria-label^='Nodes of']"),
    ("tenants/tenant-00", ".scroll[aria-label^='Pods of']"),
    ("tenants/tenant-00", "html"),
];

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

async fn signed_in(browser: &mut Browser, origin: &str, token: &str, name: &str) -> anyhow::Result<f64> {
    browser.ask(&json!({"do": "session", "session": name, "origin": origin})).await?;
    browser.ask(&json!({"do": "goto", "session": name, "url": format!("{origin}/#token={token}")})).await?;
    let viewed = browser.ask(&json!({"do": "viewed", "session": name})).await?;
    viewed.get("millis").and_then(Value::as_f64).context("no time of the first view")
}

/// The median of the first views, in milliseconds.
pub(crate) async fn first_view(browser: &mut Browser, origin: &str, token: &str) -> anyhow::Result<f64> {
    let mut all = Vec::new();
    for at in 0..FIRST_VIEWS {
        let name = format!("first-{at}");
        all.push(signed_in(browser, origin, token, &name).await?);
        browser.ask(&json!({"do": "end", "session": name})).await?;
    }
    all.sort_by(f64::total_cmp);
    all.get(FIRST_VIEWS / 2).copied().context("no first view")
}

async fn set_ready(client: &Client, node: &str, is_ready: bool) -> anyhow::Result<()> {
    let status = if is_ready { "True" } else { "False" };
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let api: Api<Node> = Api::all(client.clone());
    api.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// A change of a node whose way to the page is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// It isn't ready any more, as its kubelet writes.
    NotReady,
    /// It gets the taint of its removal, as the controller writes.
    Draining,
}

impl Change {
    /// The state that the page shows then.
    const fn state(self) -> &'static str {
        match self {
            Self::NotReady => "notReady",
            Self::Draining => "draining",
        }
    }

    /// Makes the change, or takes it back.
    async fn set(self, client: &Client, node: &str, is_made: bool) -> anyhow::Result<()> {
        match self {
            Self::NotReady => set_ready(client, node, !is_made).await,
            Self::Draining => {
                let taint = json!({"key": "croft.dev/disrupted", "effect": "NoSchedule"});
                let taints = if is_made { vec![taint] } else { Vec::new() };
                let api: Api<Node> = Api::all(client.clone());
                let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
                api.patch(node, &PatchParams::default(), &patch).await?;
                Ok(())
            }
        }
    }
}

/// The longest time from a change of a node to its block in the map of all nodes, in milliseconds.
pub(crate) async fn longest_change(
    browser: &mut Browser,
    origin: &str,
    token: &str,
    client: &Client,
    change: Change,
) -> anyhow::Result<i64> {
    let session = change.state();
    signed_in(browser, origin, token, session).await?;
    browser.ask(&json!({"do": "goto", "session": session, "url": format!("{origin}/#/")})).await?;
    let mut longest = 0;
    for at in 0..EVENTS {
        // Every fourth node is the first pool's.
        let node = node_name(4 * at);
        let block = format!(".map a.block.{}[href='#/nodes/{node}']", change.state());
        let present = format!(".map a.block.ready[href='#/nodes/{node}']");
        browser.ask(&json!({"do": "appears", "session": session, "selector": present})).await?;
        let appears = json!({"do": "appears", "session": session, "selector": block});
        let begin = now();
        let (set, shown) = tokio::join!(change.set(client, &node, true), browser.ask(&appears));
        set?;
        let shown = shown?.get("at").and_then(Value::as_i64).context("no time of the event")?;
        longest = longest.max(shown - begin);
        change.set(client, &node, false).await?;
    }
    browser.ask(&json!({"do": "end", "session": session})).await?;
    Ok(longest)
}

/// Changes nodes for ever.
fn change(client: &Client) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        for at in (0..NODES).cycle() {
            // A change that fails is followed by the next.
            let _ = set_ready(&client, &node_name(at), at % 2 == 0).await;
            tokio::time::sleep(CHANGES).await;
        }
    })
}

/// The longest task of the main thread while views are scrolled, in milliseconds.
pub(crate) async fn longest_task(
    browser: &mut Browser,
    origin: &str,
    token: &str,
    client: &Client,
) -> anyhow::Result<f64> {
    signed_in(browser, origin, token, "scroll").await?;
    let changing = change(client);
    let mut longest = 0.0;
    for (view, selector) in SCROLLED {
        browser.ask(&json!({"do": "goto", "session": "scroll", "url": format!("{origin}/#/{view}")})).await?;
        for there in ["main[aria-busy=false] table", selector] {
            browser.ask(&json!({"do": "appears", "session": "scroll", "selector": there})).await?;
        }
        let answer = browser.ask(&json!({"do": "scroll", "session": "scroll", "selector": selector})).await?;
        let task = answer.get("longest").and_then(Value::as_f64).context("no tasks")?;
        let frames = answer.get("frames").and_then(Value::as_i64).unwrap_or_default();
        println!("scrolling {selector} of #/{view}: {frames} frames, longest task {task:.0} ms");
        longest = f64::max(longest, task);
    }
    changing.abort();
    Ok(longest)
}

/// The page's files, compressed.
pub(crate) async fn kilobytes() -> anyhow::Result<f64> {
    let folder = CroftOptions::find()?.manifests.join("../page/dist");
    let mut bytes = 0;
    for file in ["index.html", "app.js", "app.css", "icon.svg"] {
        let output = Command::new("gzip").args(["-9", "-c"]).arg(folder.join(file)).output().await?;
        anyhow::ensure!(output.status.success(), "failed to compress {file}");
        bytes += output.stdout.len();
    }
    #[expect(clippy::cast_precision_loss, reason = "a size that is shown")]
    let kilobytes = bytes as f64 / 1e3;
    Ok(kilobytes)
}
