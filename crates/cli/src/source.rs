//! Arguments that say where a command reads: files, or a cluster.

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use croft_manifest::{Input, LoadOptions, load};
use croft_runtime::connect::connect_within;
use kube::Client;

use crate::{activity::Activity, cluster_reader::read, failure::Failure, output::Output};

/// Time until an answer begins. An API server ends requests itself after 60 s, but for watches, whose answers begin at once.
pub(crate) const ANSWER: Duration = Duration::from_secs(65);

/// Arguments of a command that reads files.
#[derive(Args, Clone, Debug)]
pub(crate) struct FileArgs {
    /// File, folder or - (standard input) with Kubernetes and Croft objects; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    /// Namespace of objects that name none
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
}

impl FileArgs {
    /// True if one of the files is standard input.
    pub(crate) fn reads_standard_input(&self) -> bool {
        self.filenames.iter().any(|name| name.as_os_str() == "-")
    }

    /// The files.
    pub(crate) fn filenames(&self) -> &[PathBuf] {
        &self.filenames
    }

    /// Namespace of objects that name none.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads the files.
    ///
    /// # Errors
    /// As [`load_files`].
    pub(crate) fn load(&self, out: &mut Output) -> Result<Input, Failure> {
        let Self { filenames, namespace } = self;
        load_files(filenames, namespace, out)
    }
}

/// Reads files, and writes their warnings: fields that are ignored, objects that are given twice.
///
/// # Errors
/// As [`load`], and if standard error can't be written.
pub(crate) fn load_files(filenames: &[PathBuf], namespace: &str, out: &mut Output) -> Result<Input, Failure> {
    let mut input = load(filenames, &LoadOptions { namespace: namespace.to_owned() })?;
    out.warn(&std::mem::take(&mut input.warnings))?;
    Ok(input)
}

/// Arguments of a command that reads files or the cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// Read these files, folders or - (standard input) instead of the cluster; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Arguments of a command that talks to a cluster.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// The cluster; else KUBECONFIG, the pod's service account, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl SourceArgs {
    /// Reads the files, or the cluster if none is named. `namespace` is that of objects in files that name none.
    pub(crate) fn load(&self, namespace: &str, out: &mut Output) -> Result<Input, Failure> {
        let Self { filenames, cluster } = self;
        if filenames.is_empty() { cluster.read() } else { load_files(filenames, namespace, out) }
    }

    /// The arguments for the cluster.
    pub(crate) const fn cluster(&self) -> &ClusterArgs {
        &self.cluster
    }

    /// True if the cluster is read.
    pub(crate) fn is_live(&self) -> bool {
        self.filenames.is_empty()
    }
}

impl ClusterArgs {
    /// The kubeconfig that is named.
    pub(crate) fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Reads the cluster.
    ///
    /// # Errors
    /// If it can't be reached, or a kind can't be listed.
    pub(crate) fn read(&self) -> Result<Input, Failure> {
        let _activity = Activity::start("reading the cluster");
        Ok(self.run(async |client| read(&client).await)?)
    }

    /// Runs `work` with a client of the cluster, on a runtime of one thread.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> anyhow::Result<T> {
        block_on(async { work(connect_within(self.kubeconfig.as_deref(), ANSWER).await?).await })
    }
}

/// Runs `work` on a runtime of one thread.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start")?;
    runtime.block_on(work)
}
