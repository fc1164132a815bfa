//! Answers about a cluster as data: what admission does, what the scheduler plans, what constraints cost.
//!
//! ```text
//!  Input ──workload──▶ pods ──admission──▶ pods as created ──simulation──▶ plan, consolidation ──▶ outlook, what_if
//!                                   └──▶ plan                    └──▶ advice ──▶ advice_rows
//! ```
//!
//! An [`Input`](croft_manifest::Input) enters, which its caller has read from files or from a cluster; plans, prices and sentences
//! leave. The `croft` command line and the page call this crate, so they give the same answers, and it calls the functions that
//! the webhook and the controller call. No I/O; the clock is read only where an input doesn't say when it was recorded, and for the
//! time that a plan took.
//!
//! | module | owns |
//! |---|---|
//! | [`admission`], `plan`, `planned` | what Croft's admission does to the input's pods and DaemonSets |
//! | `custom_workloads` | the same for the pods of other controllers' kinds, such as Rollouts |
//! | [`workload`] | the pods that workloads create |
//! | [`simulation`] | the scheduler's plan for an input, consolidation and replay included |
//! | [`advice`], `advice_rows` | prices of constraints |
//! | [`comparison`] | the nodes that are there, whoever launched them, beside the plan for the same pods |
//! | [`inventory`] | nodes of an input with pool, claim and price |
//! | `node_index` | pool and claim of a node, and the offering of its type, by key instead of by a scan for each node |
//! | `shortfall` | workloads of which a limit leaves nodes for some pods only |
//! | [`reasons`] | meaning and remedy of each reason for a pending pod |
//! | `class_types` | a catalogue with the settings of each class, and for another region |
//! | `templates` | nodes of each template of a pool, and why no further one is launched by it |
//! | `device_amounts` | devices and huge pages that nodes show in other amounts than their templates declare |
//! | `tenancy` | the tenants of an input, for callers without an [`admission::Admission`] |
//! | `node_state` | the state of a node in a word |
//! | `node_use` | CPU and memory that nodes use, from the metrics API's answer |
//! | `launch_choice`, `node_removal` | why a node has its type, and what keeps it |
//! | `places`, `what_if` | the place of a pending pod, the effect of a manifest, and the instances and nodes that both name |
//! | `inputs` | a snapshot of the record as an input, and the objects of one input put over those of another |
//! | [`amounts`] | dollars and counts in sentences |

pub mod admission;
pub mod advice;
mod advice_rows;
pub mod amounts;
mod class_types;
pub mod comparison;
mod custom_workloads;
mod device_amounts;
mod inputs;
pub mod inventory;
mod launch_choice;
mod node_index;
mod node_removal;
mod node_state;
mod node_use;
mod places;
mod plan;
mod planned;
pub mod reasons;
mod shortfall;
pub mod simulation;
mod templates;
mod tenancy;
mod what_if;
pub mod workload;

pub use advice_rows::{AdviceRow, AdviceRows, advice_rows};
pub use custom_workloads::warnings as custom_workload_warnings;
pub use device_amounts::other_amounts;
pub use inputs::{merge, recorded_input};
pub use launch_choice::{LaunchChoice, TypePrice, launch_choice};
pub use node_index::{NodeIndex, OfferingIndex};
pub use node_removal::{KeepingPod, NodeRemoval, consolidation_meaning, node_removal};
pub use node_state::{NodeState, node_state};
pub use node_use::{NODE_METRICS, NodeMetricsList, NodeUse};
pub use places::{
    ExistingNode, NewInstance, Outlook, PendingReason, existing_nodes, new_instance, outlook, pending_reasons,
};
pub use plan::{add_shortfalls, plan};
pub use planned::Planned;
pub use shortfall::{Limit, Shortfall, WorkloadShortfall, shortfalls};
pub use templates::{TemplateNodes, templates};
pub use tenancy::Tenancy;
pub use what_if::{PendingPods, WhatIf, pods_asked_for, what_if};
