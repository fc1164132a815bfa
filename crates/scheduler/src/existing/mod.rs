//! Placement onto nodes that exist, then onto those that are coming.
//!
//! Begin with `placement`, which `solve` runs before anything is packed.
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
