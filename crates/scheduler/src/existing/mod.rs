//! Placement onto nodes that exist, then onto those that are coming.
//!
//! In go the demand, the topology groups with the pods that run already, and the room of each node. Out come the places that get
//! pods, the groups with those pods counted, and how many pods of each class are left, for which instances are packed.
//!
//! A run has these steps. Begin with `placement`, which has them in order:
//!
//! 1. The nodes that suit a class by labels and taints, by name; those with a PreferNoSchedule taint that it doesn't tolerate
//!    come last.
//! 2. Class by class in the order of kube-scheduler's queue: on each of these nodes as many pods as resources, ports, volumes and
//!    constraints between pods allow. Classes that spread go to the domain with the fewest of them, one pod at a time.
//! 3. The same again for classes with affinity or spreads, since pods placed since then may allow more of them, until nothing changes.
//! 4. The same on coming nodes.
//!
//! A placement must hold in whatever order kube-scheduler binds the pods. A pod that would keep another planned one out, or take
//! the last room beside an affinity target, is held off; `solve` lets it in again if that was in vain.
//!
//! | file | question that it answers |
//! |---|---|
//! | `placement` | which pods go to which node, in which order |
//! | `rules` | how many more pods the constraints between pods allow on a node |
//! | `host_counts` | from which minimum a spread over hostnames measures the skew |
//! | `room` | what resources, ports and volumes a node has left |
//! | `emptiest_node` | which node kube-scheduler would choose for a pod without a nomination |
//! | `cache` | what several solves of one cluster need not compute again |

pub(crate) mod cache;
pub(crate) mod emptiest_node;
pub(crate) mod host_counts;
pub(crate) mod placement;
pub(crate) mod room;
pub(crate) mod rules;
