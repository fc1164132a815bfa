//! Reads the use of nodes, where the cluster has the metrics API.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_inspect::{NODE_METRICS, NodeMetricsList, NodeUse};
use croft_runtime::shutdown::Shutdown;
use kube::Client;
use tokio::time::{sleep, timeout};

use super::store::State;

/// metrics-server measures every 15 seconds.
const PAUSE: Duration = Duration::from_secs(30);
/// A cluster without the metrics API seldom gets it.
const PAUSE_WITHOUT: Duration = Duration::from_secs(300);
/// An answer that takes longer is none: the last one would be shown meanwhile.
const WITHIN: Duration = Duration::from_secs(10);

/// Reads for ever, or until `stop` begins.
pub async fn run(client: Client, state: Arc<State>, stop: Shutdown) {
    loop {
        // Use that isn't known any more isn't shown as if it were.
        let (usage, pause) = read(&client).await;
        if state.cluster().usage != usage {
            state.change(|cluster| cluster.usage = usage);
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.wait() => return,
        }
    }
}

/// The use of each node, if it is known, and the pause until it is read again.
async fn read(client: &Client) -> (BTreeMap<String, NodeUse>, Duration) {
    let Ok(request) = http::Request::get(NODE_METRICS).body(Vec::new()) else {
        return (BTreeMap::new(), PAUSE_WITHOUT);
    };
    match timeout(WITHIN, client.request::<NodeMetricsList>(request)).await {
        Ok(Ok(list)) => (list.by_node(), PAUSE),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the metrics API doesn't answer: the page shows no use");
            (BTreeMap::new(), pause_after(&error))
        }
        Err(_) => {
            tracing::debug!("the metrics API doesn't answer in time: the page shows no use");
            (BTreeMap::new(), PAUSE)
        }
    }
}

/// A cluster that has no metrics API, or doesn't let the page read it, is asked seldom; another error may be over soon.
fn pause_after(error: &kube::Error) -> Duration {
    match error {
        kube::Error::Api(status) if status.is_not_found() || status.is_forbidden() => PAUSE_WITHOUT,
        _ => PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_a_cluster_without_the_api_or_the_right_is_asked_seldom() {
        let answer = |reason: &str, code| {
            pause_after(&kube::Error::Api(Box::new(Status::failure("no", reason).with_code(code))))
        };
        assert_eq!(
            [answer("NotFound", 404), answer("Forbidden", 403), answer("ServiceUnavailable", 503)],
            [PAUSE_WITHOUT, PAUSE_WITHOUT, PAUSE]
        );
    }
}
