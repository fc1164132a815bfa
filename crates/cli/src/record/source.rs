//! Where the decision log is read from: Croft's namespace, or a file.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use clap::Args;
use croft_manifest::InputError;
use croft_record::{
    COMPONENT, COMPONENT_LABEL, SEGMENT_KEY,
    ledger::closed::{LEDGER_SLOTS, Ledger},
    record::Record,
    slots::{LEDGER_PREFIX, SNAPSHOT_PREFIX, slot_name},
    writer::SLOTS,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

#[cfg(feature = "aws")]
use super::archive::Archive;
use super::time::{self, Period};
#[cfg(feature = "aws")]
use crate::source::block_on;
use crate::{failure::Failure, output::Output, source::ClusterArgs};

/// Arguments of a command that reads the decision log.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordArgs {
    /// Read this decision log instead of the cluster's: a file, as croft debug record writes it, or s3://BUCKET/PREFIX, where the
    /// controller archives it
    #[arg(long, value_name = "FILE or URL")]
    record: Option<String>,
}

impl RecordArgs {
    /// Reads the log, and warns of damage. Of an archive, what concerns `period` is read.
    ///
    /// # Errors
    /// If it can't be read, or has no entry.
    pub(crate) fn load(
        &self,
        cluster: &ClusterArgs,
        period: Period,
        out: &mut Output,
    ) -> Result<Record, Failure> {
        let read = match &self.record {
            Some(url) if is_archive(url) => from_archive(url, period)?,
            _ => self.read(cluster)?.0,
        };
        checked(read, out)
    }

    /// Reads the log and the closed hours and days, and warns of damage. A file has the log alone. Of an archive, what concerns
    /// `period` is read.
    ///
    /// # Errors
    /// If it can't be read, or the log has no entry.
    pub(crate) fn load_with_ledger(
        &self,
        cluster: &ClusterArgs,
        period: Period,
        out: &mut Output,
    ) -> Result<(Record, Ledger), Failure> {
        let (read, ledger) = match &self.record {
            Some(url) if is_archive(url) => from_archive_with_ledger(url, period)?,
            _ => self.read(cluster)?,
        };
        if ledger.is_damaged() {
            let message = "the ledger is damaged: what is missing is computed from the decision log, as far as that goes back";
            out.warn(&[message.to_owned()])?;
        }
        Ok((checked(read, out)?, ledger))
    }

    fn read(&self, cluster: &ClusterArgs) -> Result<(Record, Ledger), Failure> {
        let Self { record } = self;
        match record {
            Some(file) => Ok((from_file(Path::new(file))?, Ledger::default())),
            None => Ok(cluster.run(async |client| from_cluster(&client, cluster.croft_namespace()).await)?),
        }
    }

    /// The error for something that the log doesn't name.
    pub(crate) fn missing(record: &Record, what: &str) -> Failure {
        let begins = record.begins().map(|at| format!("; the decision log begins at {}", time::text(at)));
        InputError::Other(format!("no entry names {what}{}", begins.unwrap_or_default())).into()
    }
}

/// The log, with a warning of damage.
fn checked(read: Record, out: &mut Output) -> Result<Record, Failure> {
    if !read.damaged.is_empty() {
        let names = read.damaged.join(", ");
        out.warn(&[format!("the decision log is damaged, and entries are missing: {names}")])?;
    }
    if read.entries.is_empty() {
        let wanted = "the decision log has no entry: the controller writes one within 10 s of beginning to lead (croft check)";
        return Err(InputError::Other(wanted.to_owned()).into());
    }
    Ok(read)
}

/// True for the address of an archive.
pub(super) fn is_archive(url: &str) -> bool {
    url.starts_with("s3://")
}

#[cfg(feature = "aws")]
fn from_archive(url: &str, period: Period) -> anyhow::Result<Record> {
    block_on(async { Archive::open(url).await?.log(period).await })
}

#[cfg(feature = "aws")]
fn from_archive_with_ledger(url: &str, period: Period) -> anyhow::Result<(Record, Ledger)> {
    block_on(async { Archive::open(url).await?.log_and_ledger(period).await })
}

#[cfg(not(feature = "aws"))]
fn from_archive(url: &str, _: Period) -> anyhow::Result<Record> {
    anyhow::bail!("{url} can't be read: this croft was built without the feature aws")
}

#[cfg(not(feature = "aws"))]
fn from_archive_with_ledger(url: &str, period: Period) -> anyhow::Result<(Record, Ledger)> {
    Ok((from_archive(url, period)?, Ledger::default()))
}

fn from_file(file: &Path) -> Result<Record, Failure> {
    let bytes = std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
    let read = Record::read([(file.to_string_lossy().as_ref(), bytes.as_slice())]);
    if read.entries.is_empty() && !read.damaged.is_empty() {
        let message = format!("{} is no decision log: croft debug record writes one", file.display());
        return Err(InputError::Other(message).into());
    }
    Ok(read)
}

async fn from_cluster(client: &Client, namespace: &str) -> anyhow::Result<(Record, Ledger)> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let slots = ListParams::default().labels(&format!("{COMPONENT_LABEL}={COMPONENT}"));
    let list = api.list(&slots).await.with_context(|| {
        format!("failed to list the ConfigMaps of namespace {namespace}, which hold the decision log")
    })?;
    let named: BTreeMap<String, Vec<u8>> = list
        .items
        .into_iter()
        .filter_map(|slot| {
            let name = slot.name_any();
            Some((name, slot.binary_data?.remove(SEGMENT_KEY)?.0))
        })
        .collect();
    let of_ledger =
        (SLOTS..SLOTS + LEDGER_SLOTS).filter_map(|slot| Some((slot, named.get(&slot_name(slot))?)));
    let ledger = Ledger::read(of_ledger.map(|(slot, bytes)| (slot, bytes.as_slice())));
    let of_log = named
        .iter()
        .filter(|(name, _)| !name.starts_with(LEDGER_PREFIX) && !name.starts_with(SNAPSHOT_PREFIX));
    Ok((Record::read(of_log.map(|(name, bytes)| (name.as_str(), bytes.as_slice()))), ledger))
}
