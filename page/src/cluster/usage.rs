//! Used CPU and memory of nodes, as exactly as it is shown.

pub use croft_inspect::NodeUse;

/// A twentieth of a node is as exact as a block can show it, and seldom differs from the one before.
const STEPS: i64 = 20;

/// The use in twentieths of what is allocatable, so that a node whose use hardly differs isn't sent again.
#[must_use]
pub const fn coarse(used: NodeUse, cpu: i64, memory: i64) -> NodeUse {
    NodeUse { cpu: in_steps(used.cpu, cpu), memory: in_steps(used.memory, memory) }
}

const fn in_steps(used: i64, allocatable: i64) -> i64 {
    let step = allocatable / STEPS;
    if step <= 0 { used } else { used.saturating_add(step / 2) / step * step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_that_hardly_differs_is_the_same() {
        let of = |cpu| coarse(NodeUse { cpu, memory: 0 }, 2_000, 1 << 30).cpu;
        assert_eq!((of(990), of(1_010), of(1_060), of(0)), (1_000, 1_000, 1_100, 0));
        let used = NodeUse { cpu: 7, memory: 9 };
        assert_eq!(coarse(used, 0, 0), used, "of no known size");
    }
}
