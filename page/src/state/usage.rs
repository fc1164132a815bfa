//! Reads what nodes use, where the cluster has the metrics API.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_runtime::shutdown::Shutdown;
use kube::Client;
use tokio::time::sleep;

use super::store::State;
use crate::cluster::usage::{NodeMetricsList, Usage};

const PATH: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
/// metrics-server measures every 15 seconds.
const PAUSE: Duration = Duration::from_secs(30);
/// A cluster without the metrics API seldom gets it.
const PAUSE_WITHOUT: Duration = Duration::from_secs(300);

/// Reads for ever, or until `stop` begins.
pub async fn run(client: Client, state: Arc<State>, stop: Shutdown) {
    loop {
        let answer = read(&client).await;
        let pause = if answer.is_some() { PAUSE } else { PAUSE_WITHOUT };
        // Use that isn't known any more isn't shown as if it were.
        let usage = answer.unwrap_or_default();
        if state.cluster().usage != usage {
            state.change(|cluster| cluster.usage = usage);
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.wait() => return,
        }
    }
}

async fn read(client: &Client) -> Option<BTreeMap<String, Usage>> {
    let request = http::Request::get(PATH).body(Vec::new()).ok()?;
    match client.request::<NodeMetricsList>(request).await {
        Ok(list) => Some(list.by_node()),
        Err(error) => {
            tracing::debug!(%error, "the metrics API doesn't answer: the page shows no use");
            None
        }
    }
}
