//! Shares: which part of a pool's nodes those of one template or capacity type may be, or must be.

use std::fmt;

use crate::model::catalog::CapacityType;

/// The nodes that a share is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareOf {
    /// The nodes of the template of this name.
    Template(String),
    /// The nodes that are paid for in this way.
    CapacityType(CapacityType),
}

impl fmt::Display for ShareOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(name) => write!(f, "of template {name}"),
            Self::CapacityType(capacity_type) => write!(f, "{capacity_type}"),
        }
    }
}

/// How many of a pool's nodes may be of a share, or must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareBound {
    /// At most so many percent of the vCPU of all nodes of the pool, 0 to 99.
    MaxPercent(u32),
    /// At least so many nodes, while the pool has as many; all of its nodes, while it has fewer.
    MinNodes(u32),
}

/// A bound on the nodes of one template or capacity type, measured against all nodes of the TenantPool.
///
/// No plan launches a node by which the share would not hold, once all that it launches is there. No removal of a node leaves the
/// pool outside the share, or further outside than it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The nodes that it is about.
    pub of: ShareOf,
    /// How many of the pool's nodes these may be, or must be.
    pub bound: ShareBound,
}

/// Nodes and their vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSum {
    /// How many nodes.
    pub nodes: i64,
    /// Their capacity in thousandths of a vCPU.
    pub cpu: i64,
}

impl NodeSum {
    fn plus(self, other: Self) -> Self {
        Self { nodes: self.nodes.saturating_add(other.nodes), cpu: self.cpu.saturating_add(other.cpu) }
    }

    fn at_most(self, other: Self) -> Self {
        Self { nodes: self.nodes.min(other.nodes), cpu: self.cpu.min(other.cpu) }
    }

    fn at_least(self, other: Self) -> Self {
        Self { nodes: self.nodes.max(other.nodes), cpu: self.cpu.max(other.cpu) }
    }
}

/// A pool's nodes, divided by a share; or a change of them, where amounts may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// The nodes that the share is about.
    pub own: NodeSum,
    /// All other nodes of the pool.
    pub others: NodeSum,
}

impl Balance {
    /// Counts a node with so many thousandths of a vCPU; `sign` is -1 for one that goes.
    pub fn count(&mut self, is_own: bool, cpu: i64, sign: i64) {
        let part = if is_own { &mut self.own } else { &mut self.others };
        *part = part.plus(NodeSum { nodes: sign, cpu: cpu.saturating_mul(sign) });
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { own: self.own.plus(other.own), others: self.others.plus(other.others) }
    }

    /// All nodes.
    #[must_use]
    pub fn all(self) -> NodeSum {
        self.own.plus(self.others)
    }
}

impl ShareBound {
    /// How far outside the bound a pool is; not above zero if it is within. Only the order of two values of one bound means something.
    pub(crate) fn excess(self, Balance { own, others }: Balance) -> i128 {
        match self {
            Self::MaxPercent(percent) => {
                let [own, others, percent] = [own.cpu, others.cpu, i64::from(percent)].map(i128::from);
                own * (100 - percent) - others * percent
            }
            Self::MinNodes(least) => i128::from((i64::from(least) - own.nodes).min(others.nodes)),
        }
    }

    /// The part of a change that takes a pool towards the bound or beyond.
    pub(crate) fn worse_part(self, change: Balance) -> Balance {
        let zero = NodeSum::default();
        match self {
            Self::MaxPercent(_) => {
                Balance { own: change.own.at_least(zero), others: change.others.at_most(zero) }
            }
            Self::MinNodes(_) => {
                Balance { own: change.own.at_most(zero), others: change.others.at_least(zero) }
            }
        }
    }
}

impl Share {
    /// True for a node of this template and capacity type that the share is about. Of a node whose capacity type is unknown, the worse
    /// for the share is assumed.
    #[must_use]
    pub fn is_about(&self, template: Option<&str>, capacity_type: Option<CapacityType>) -> bool {
        match &self.of {
            ShareOf::Template(name) => template == Some(name.as_str()),
            ShareOf::CapacityType(own) => capacity_type
                .map_or(matches!(self.bound, ShareBound::MaxPercent(_)), |capacity_type| {
                    capacity_type == *own
                }),
        }
    }

    /// True if a pool with these nodes is within the share.
    #[must_use]
    pub fn holds(&self, balance: Balance) -> bool {
        self.bound.excess(balance) <= 0
    }

    /// The share of a pool in words, such as "at most 70 % of pool web's vCPU may be spot".
    #[must_use]
    pub fn of_pool(&self, pool: &str) -> String {
        let of = &self.of;
        match self.bound {
            ShareBound::MaxPercent(percent) => {
                format!("at most {percent} % of pool {pool}'s vCPU may be {of}")
            }
            ShareBound::MinNodes(1) => format!("the first node of pool {pool} must be {of}"),
            ShareBound::MinNodes(least) => format!("the first {least} nodes of pool {pool} must be {of}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(own: (i64, i64), others: (i64, i64)) -> Balance {
        let sum = |(nodes, cpu)| NodeSum { nodes, cpu };
        Balance { own: sum(own), others: sum(others) }
    }

    fn spot(bound: ShareBound) -> Share {
        Share { of: ShareOf::CapacityType(CapacityType::Spot), bound }
    }

    #[test]
    fn max_holds_up_to_the_exact_part_of_the_vcpu() {
        let share = spot(ShareBound::MaxPercent(70));
        assert!(share.holds(Balance::default()));
        assert!(share.holds(balance((7, 7_000), (1, 3_000))));
        assert!(!share.holds(balance((1, 7_001), (9, 3_000))));
        assert!(!share.holds(balance((1, 1), (0, 0))), "a node alone is all of the pool");
        assert!(share.holds(balance((0, 0), (1, 1))));
    }

    #[test]
    fn min_nodes_holds_without_other_nodes_or_with_enough_own_ones() {
        let share = spot(ShareBound::MinNodes(2));
        for (own, others, holds) in [(0, 0, true), (1, 0, true), (0, 1, false), (1, 1, false), (2, 9, true)] {
            assert_eq!(share.holds(balance((own, 0), (others, 0))), holds, "{own} {others}");
        }
    }

    #[test]
    fn share_is_said_in_words() {
        let template = Share { of: ShareOf::Template("steady".to_owned()), bound: ShareBound::MinNodes(2) };
        assert_eq!(template.of_pool("web"), "the first 2 nodes of pool web must be of template steady");
        let max = spot(ShareBound::MaxPercent(70));
        assert_eq!(max.of_pool("web"), "at most 70 % of pool web's vCPU may be spot");
    }
}
