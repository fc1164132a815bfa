//! Used CPU and memory of nodes, as the metrics API says.

use std::collections::BTreeMap;

use croft_scheduler::resources;
use serde::Deserialize;

/// Used CPU in thousandths, used memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU, in thousandths.
    pub cpu: i64,
    /// Memory, in bytes.
    pub memory: i64,
}

/// A twentieth of a node is as exact as a block can show it, and seldom differs from the one before.
const STEPS: i64 = 20;

impl Usage {
    /// The same in twentieths of what is allocatable, so that a node whose use hardly differs isn't sent again.
    #[must_use]
    pub const fn coarse(self, cpu: i64, memory: i64) -> Self {
        Self { cpu: coarse(self.cpu, cpu), memory: coarse(self.memory, memory) }
    }
}

const fn coarse(used: i64, allocatable: i64) -> i64 {
    let step = allocatable / STEPS;
    if step <= 0 { used } else { used.saturating_add(step / 2) / step * step }
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
    pub fn by_node(self) -> BTreeMap<String, Usage> {
        let read = |NodeMetrics { metadata, usage }: NodeMetrics| {
            let amount = |name| Some(resources::native(name, usage.get(name)?.parse().ok()?));
            let usage = Usage { cpu: amount(resources::CPU)?, memory: amount(resources::MEMORY)? };
            Some((metadata.name, usage))
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
        assert_eq!(read, BTreeMap::from([("a".to_owned(), Usage { cpu: 250, memory: 1 << 30 })]));
    }

    #[test]
    fn use_that_hardly_differs_is_the_same() {
        let of = |cpu| Usage { cpu, memory: 0 }.coarse(2_000, 1 << 30).cpu;
        assert_eq!((of(990), of(1_010), of(1_060), of(0)), (1_000, 1_000, 1_100, 0));
        assert_eq!(Usage { cpu: 7, memory: 9 }.coarse(0, 0), Usage { cpu: 7, memory: 9 }, "of no known size");
    }
}
