//! Arguments that say where a command reads: files, or a cluster.

use std::{future::Future, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use croft_manifest::{Input, LoadOptions, load};
use croft_policy::model::DEFAULT_NAMESPACE;
use croft_runtime::connect::{Target, connect_within, context_namespace};
use kube::Client;

use crate::{
    activity::Activity,
    cluster_reader::{read, read_any},
    failure::Failure,
    output::Output,
};

/// Above these arguments in the help of each command. It isn't that of the struct, which would be above all arguments after these, too.
const HEADING: &str = "The cluster";
/// Time until an answer begins. An API server ends requests itself after 60 s, but for watches, whose answers begin at once.
const ANSWER: Duration = Duration::from_secs(65);

/// Arguments of a command that reads files.
#[derive(Args, Clone, Debug)]
pub(crate) struct FileArgs {
    /// File, folder or - (standard input) with Kubernetes and Croft objects; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
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

    /// The arguments for the cluster.
    pub(crate) const fn cluster(&self) -> &ClusterArgs {
        &self.cluster
    }

    /// Reads the files.
    ///
    /// # Errors
    /// As [`load_files`].
    pub(crate) fn load(&self, out: &mut Output) -> Result<Input, Failure> {
        let Self { filenames, cluster } = self;
        load_files(filenames, cluster.namespace_of_files(), out)
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

/// Which cluster a command talks to, as kubectl has it. The root has them as well, so that they may stand before the command.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig; else that of KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, global = true, help_heading = HEADING, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; else its current one
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    context: Option<String>,
    /// How long to wait for each answer of the API server, such as 30s; 0 waits for ever [default: 65s]
    #[arg(long, global = true, help_heading = HEADING, value_name = "TIME", value_parser = request_timeout)]
    request_timeout: Option<Duration>,
    /// The namespace that is asked about, and that of objects in files that name none [default: that of the context; of files,
    /// default]
    #[arg(short, long, global = true, help_heading = HEADING, value_name = "NAMESPACE", value_parser = namespace_name)]
    namespace: Option<String>,
    /// The namespace that Croft is installed in [default: croft-system]
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAMESPACE", value_parser = namespace_name)]
    croft_namespace: Option<String>,
}

/// A time as kubectl takes it: seconds, or a number with a unit.
fn request_timeout(text: &str) -> Result<Duration, String> {
    let time = match text.parse().map(Duration::from_secs) {
        Ok(seconds) => Some(seconds),
        Err(_) => croft_api::duration::parse(text).ok().flatten(),
    };
    match time {
        Some(Duration::ZERO) => Ok(Duration::MAX),
        Some(time) => Ok(time),
        None => Err(format!("{text} is no time: write one such as 30s or 2m, or 0 to wait for ever")),
    }
}

/// The name of a namespace.
fn namespace_name(text: &str) -> Result<String, String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=63).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if is_name {
        return Ok(text.to_owned());
    }
    Err("no namespace is called so: write lower-case letters, digits and '-', at most 63".to_owned())
}

impl SourceArgs {
    /// Reads the files, or the cluster if none is named.
    pub(crate) fn load(&self, out: &mut Output) -> Result<Input, Failure> {
        let Self { filenames, cluster } = self;
        if filenames.is_empty() {
            cluster.read()
        } else {
            load_files(filenames, cluster.namespace_of_files(), out)
        }
    }

    /// The arguments for the cluster.
    pub(crate) const fn cluster(&self) -> &ClusterArgs {
        &self.cluster
    }

    /// The namespace that is given, else that of the context, or `default` for files.
    ///
    /// # Errors
    /// If there is no runtime.
    pub(crate) fn namespace(&self) -> anyhow::Result<String> {
        if self.is_live() {
            self.cluster.namespace()
        } else {
            Ok(self.cluster.namespace_of_files().to_owned())
        }
    }

    /// True if the cluster is read.
    pub(crate) fn is_live(&self) -> bool {
        self.filenames.is_empty()
    }
}

impl ClusterArgs {
    /// The cluster that is named.
    pub(crate) fn target(&self) -> Target<'_> {
        Target { kubeconfig: self.kubeconfig.as_deref(), context: self.context.as_deref() }
    }

    /// The time in which each answer has to begin.
    pub(crate) fn answer(&self) -> Duration {
        self.request_timeout.unwrap_or(ANSWER)
    }

    /// The namespace that is given.
    pub(crate) fn named_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The namespace of objects in files that name none.
    pub(crate) fn namespace_of_files(&self) -> &str {
        self.named_namespace().unwrap_or("default")
    }

    /// The namespace that Croft is installed in.
    pub(crate) fn croft_namespace(&self) -> &str {
        self.croft_namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// The namespace that is given, else that of the context, as kubectl has it.
    ///
    /// # Errors
    /// If there is no runtime.
    pub(crate) fn namespace(&self) -> anyhow::Result<String> {
        match self.named_namespace() {
            Some(given) => Ok(given.to_owned()),
            None => block_on(async { Ok(context_namespace(self.target()).await) }),
        }
    }

    /// Reads the cluster.
    ///
    /// # Errors
    /// If it can't be reached, or a kind can't be listed.
    pub(crate) fn read(&self) -> Result<Input, Failure> {
        let _activity = Activity::start("reading the cluster");
        Ok(self.run(async |client| read(&client).await)?)
    }

    /// Reads a cluster in which nothing of Croft need be installed.
    ///
    /// # Errors
    /// As [`ClusterArgs::read`].
    pub(crate) fn read_any(&self) -> Result<Input, Failure> {
        let _activity = Activity::start("reading the cluster");
        Ok(self.run(async |client| read_any(&client).await)?)
    }

    /// Runs `work` with a client of the cluster, on a runtime of one thread.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> anyhow::Result<T> {
        block_on(async { work(connect_within(self.target(), self.answer()).await?).await })
    }
}

/// Runs `work` on a runtime of one thread.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start")?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_a_label_of_dns() {
        assert_eq!(namespace_name("team-1"), Ok("team-1".to_owned()));
        for wrong in ["", "Shop_A", "-a", "a-", "team/web", "a.b", &"a".repeat(64)] {
            assert!(namespace_name(wrong).unwrap_err().contains("lower-case letters"), "{wrong}");
        }
    }

    #[test]
    fn request_timeout_is_seconds_or_a_number_with_a_unit() {
        for (text, expected) in [
            ("30", Duration::from_secs(30)),
            ("2m", Duration::from_secs(120)),
            ("0", Duration::MAX),
            ("0s", Duration::MAX),
        ] {
            assert_eq!(request_timeout(text), Ok(expected), "{text}");
        }
        for wrong in ["", "soon", "Never", "-1"] {
            assert!(request_timeout(wrong).unwrap_err().contains("such as 30s"), "{wrong}");
        }
    }
}
