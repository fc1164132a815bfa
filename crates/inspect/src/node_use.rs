//! CPU and memory that nodes use, as the metrics API says.

use std::collections::BTreeMap;

use croft_scheduler::resources;
use serde::Deserialize;

/// The nodes of the metrics API (k8s.io/metrics, `NodeMetricsList`).
pub const NODE_METRICS: &str = "/apis/metrics.k8s.io/v1beta1/nodes";

/// CPU and memory that a node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// CPU, in thousandths.
    pub cpu: i64,
    /// Memory, in bytes.
    pub memory: i64,
}

/// The list of `NodeMetrics`, as far as it is read. k8s-openapi has no type of it.
#[derive(Debug, Deserialize)]
pub struct NodeMetricsList {
    items: Vec<NodeMetrics>,
}

#[derive(Debug, Deserialize)]
struct NodeMetrics {
    metadata: Named,
    usage: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

impl NodeMetricsList {
    /// The use of each node. A node whose amounts can't be read is left out.
    #[must_use]
    pub fn by_node(self) -> BTreeMap<String, NodeUse> {
        let read = |NodeMetrics { metadata, usage }: NodeMetrics| {
            let amount = |name| Some(resources::native(name, usage.get(name)?.parse().ok()?));
            let used = NodeUse { cpu: amount(resources::CPU)?, memory: amount(resources::MEMORY)? };
            Some((metadata.name, used))
        };
        self.items.into_iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn use_is_read_as_metrics_server_writes_it() {
        let list: NodeMetricsList = serde_json::from_value(json!({"items": [
            {"metadata": {"name": "a"}, "usage": {"cpu": "250000000n", "memory": "1048576Ki"}},
            {"metadata": {"name": "b"}, "usage": {"cpu": "odd", "memory": "1Gi"}}
        ]}))
        .unwrap();
        let read = list.by_node();
        assert_eq!(read, BTreeMap::from([("a".to_owned(), NodeUse { cpu: 250, memory: 1 << 30 })]));
    }
}
