//! Reads what `-f` names: any mix of Kubernetes and Croft objects, defaulted as the API server would.
//!
//! ```text
//!  paths ──files──▶ text ──tree──▶ values with lines ──decode──▶ typed objects ──defaults, check──▶ Input
//! ```
//!
//! A file may hold many documents, a List, or JSON; a folder stands for the YAML and JSON files in it; `-` is
//! standard input. Kinds that Croft doesn't look at are passed over. Whatever is wrong is reported with file,
//! line, object and field, all of it at once.

pub mod builtin;
mod check;
mod crd;
mod decode;
mod defaults;
mod files;
mod kinds;
mod objects;
pub(crate) mod quantity;
mod raw;
mod tree;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use clap::Args;
use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{
        LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    },
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
    storage::v1::{CSINode, StorageClass},
};
use thiserror::Error;

pub(crate) use crd::fit;
pub(crate) use decode::closest;
pub use objects::{Objects, Sourced};
pub(crate) use raw::{RawObject, read as read_raw};
pub(crate) use tree::is_special_scalar;

/// Everything that was read, by kind, each in the order of the files.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Input {
    /// Who owns which namespaces and pools.
    pub tenants: Objects<Tenant>,
    /// What the pools are.
    pub pools: Objects<TenantPool>,
    /// How machines are made.
    pub classes: Objects<EC2NodeClass>,
    /// Machines on their way, or there.
    pub claims: Objects<NodeClaim>,
    /// The settings, if given: at most one.
    pub configs: Objects<CroftConfig>,
    /// Namespaces with their labels and annotations.
    pub namespaces: Objects<Namespace>,
    /// Nodes that exist.
    pub nodes: Objects<Node>,
    /// Pods, bound, pending or yet to be made.
    pub pods: Objects<Pod>,
    /// Workloads by kind.
    pub deployments: Objects<Deployment>,
    /// ReplicaSets, those of Deployments included.
    pub replica_sets: Objects<ReplicaSet>,
    /// StatefulSets.
    pub stateful_sets: Objects<StatefulSet>,
    /// DaemonSets.
    pub daemon_sets: Objects<DaemonSet>,
    /// ReplicationControllers.
    pub replication_controllers: Objects<ReplicationController>,
    /// Jobs, those of CronJobs included.
    pub jobs: Objects<Job>,
    /// CronJobs.
    pub cron_jobs: Objects<CronJob>,
    /// Claims on volumes.
    pub volume_claims: Objects<PersistentVolumeClaim>,
    /// Volumes.
    pub volumes: Objects<PersistentVolume>,
    /// Where volumes come from.
    pub storage_classes: Objects<StorageClass>,
    /// How many volumes a node may attach.
    pub csi_nodes: Objects<CSINode>,
    /// Priorities by name.
    pub priority_classes: Objects<PriorityClass>,
    /// Overheads, selectors and tolerations of runtimes.
    pub runtime_classes: Objects<RuntimeClass>,
    /// Default requests of a namespace's containers.
    pub limit_ranges: Objects<LimitRange>,
    /// How many pods may be missing.
    pub budgets: Objects<PodDisruptionBudget>,
    /// How many objects of each other kind were passed over.
    pub passed_over: BTreeMap<String, usize>,
    /// What is odd, and was worked around.
    pub warnings: Vec<String>,
}

/// Where an object was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file as the user named it; `-` for standard input.
    pub file: Arc<str>,
    /// The object's first line.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One thing that is wrong with the input.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct Problem {
    /// The file, and the line of the value that is wrong.
    pub origin: Origin,
    /// Kind and name of the object, such as `Deployment shop/web`; empty while that isn't known.
    pub object: String,
    /// Path of the field; empty for the object itself.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        for part in [&self.object, &self.field] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.message)
    }
}

/// Why the input can't be used. The command line exits with 2.
#[derive(Debug, Error)]
pub enum InputError {
    /// A file or folder that can't be read.
    #[error("failed to read {path}: {source}")]
    File {
        /// As the user named it.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder without a file to read.
    #[error("failed to read {path}: the folder holds no .yaml, .yml or .json file")]
    EmptyFolder {
        /// As the user named it.
        path: String,
    },
    /// Objects that are wrong, all of them.
    #[error("{}", list(.0))]
    Problems(Vec<Problem>),
    /// Anything else about the input that the user must mend.
    #[error("{0}")]
    Other(String),
}

/// So many problems are shown; the rest is counted.
const SHOWN_PROBLEMS: usize = 20;

fn list(problems: &[Problem]) -> String {
    let mut lines: Vec<String> = problems.iter().take(SHOWN_PROBLEMS).map(ToString::to_string).collect();
    if let Some(more) = problems.len().checked_sub(SHOWN_PROBLEMS).filter(|n| *n > 0) {
        lines.push(format!("... and {more} more"));
    }
    lines.join("\n")
}

impl Origin {
    /// The line of `field` in the object that begins here. Reads the file again: it is asked only when something
    /// is wrong.
    #[must_use]
    pub fn line_of(&self, field: &str) -> u32 {
        fn find(tree: &tree::Tree, line: u32) -> Option<&tree::Tree> {
            match tree.get("items").map(|items| &items.node) {
                Some(tree::Node::List(items)) => items.iter().find_map(|item| find(item, line)),
                _ => (tree.line == line).then_some(tree),
            }
        }
        let documents = std::fs::read_to_string(&*self.file)
            .ok()
            .and_then(|text| tree::read(&text, &mut Vec::new()).ok());
        let found = documents.as_deref().and_then(|all| all.iter().find_map(|tree| find(tree, self.line)));
        found.map_or(self.line, |tree| tree.line_of(field))
    }
}

/// Which files a command reads.
#[derive(Args, Clone, Debug)]
pub struct FileArgs {
    /// File, folder or - (standard input) with Kubernetes and Croft objects; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    /// Namespace of objects that name none
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
}

impl FileArgs {
    /// True if one of them is standard input.
    #[must_use]
    pub fn reads_standard_input(&self) -> bool {
        self.filenames.iter().any(|name| name.as_os_str() == "-")
    }

    /// Reads them.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(&self) -> Result<Input, InputError> {
        let Self { filenames, namespace } = self;
        load(filenames, &LoadOptions { namespace: namespace.clone() })
    }
}

/// How files are read.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The namespace of objects that name none.
    pub namespace: String,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { namespace: "default".to_owned() }
    }
}

/// Reads every object that `paths` name.
///
/// # Errors
/// Files that can't be read, and everything that is wrong with the objects in them.
pub fn load(paths: &[PathBuf], options: &LoadOptions) -> Result<Input, InputError> {
    let mut input = Input::default();
    let mut problems = Vec::new();
    for source in files::read(paths)? {
        kinds::read(&source, options, &mut input, &mut problems);
    }
    check::across(&input, &mut problems);
    if problems.is_empty() { Ok(input) } else { Err(InputError::Problems(problems)) }
}

/// The documents of `text` as JSON.
#[cfg(test)]
pub(crate) fn parse_for_tests(text: &str) -> Vec<serde_json::Value> {
    tree::read(text, &mut Vec::new()).unwrap().iter().map(tree::Tree::to_json).collect()
}
