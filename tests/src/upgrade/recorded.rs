//! The files of a recorded release.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use croft_testkit::StoredObject;
use serde_json::Value;

/// Objects that every control plane makes for itself, or that would be wrong in another: the lab's own rights, certificates
/// and keys, Leases and what a kubelet or a controller writes again at once.
const LEFT_OUT: [&str; 16] = [
    "apiregistration.k8s.io/",
    "configmaps/",
    "endpointslices/",
    "events/",
    "flowschemas/",
    "internal.apiserver.k8s.io/",
    "ipaddresses/",
    "leases/",
    "masterleases/",
    "priorityclasses/",
    "prioritylevelconfigurations/",
    "ranges/",
    "secrets/",
    "servicecidrs/",
    "services/",
    "storageclasses/",
];
/// Calls of the cloud that change nothing begin with these words.
const READS: [&str; 4] = ["Describe", "Get", "List", "Receive"];

/// The objects that a version stored, and what it did in the cloud.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The version.
    pub version: String,
    /// By key.
    pub objects: Vec<StoredObject>,
    /// The journal of ec2-sim.
    pub journal: String,
}

impl Recorded {
    /// The folders of all recorded releases.
    ///
    /// # Errors
    /// If there is none.
    pub fn folders() -> anyhow::Result<Vec<PathBuf>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/releases");
        let entries = fs::read_dir(&root).with_context(|| format!("failed to read {}", root.display()))?;
        let mut folders: Vec<PathBuf> =
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        folders.sort();
        anyhow::ensure!(!folders.is_empty(), "{} is empty", root.display());
        Ok(folders)
    }

    /// The folder of the present version.
    #[must_use]
    pub fn folder_of_this_version() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/releases").join(env!("CARGO_PKG_VERSION"))
    }

    /// A record of the stored objects that belong into one.
    #[must_use]
    pub fn new(version: &str, mut objects: Vec<StoredObject>, journal: &str) -> Self {
        objects.retain(is_recorded);
        let lines = journal.lines().filter(|line| is_change(line)).map(|line| format!("{line}\n"));
        Self { version: version.to_owned(), objects, journal: lines.collect() }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If a file can't be read.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
        };
        let objects = read("objects.jsonl")?;
        let objects = objects.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        let version = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self {
            version: version.unwrap_or_default(),
            objects: objects
                .with_context(|| format!("failed to read the objects in {}", folder.display()))?,
            journal: read("ec2.jsonl")?,
        })
    }

    /// Writes a record.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        let mut lines = String::new();
        for object in &self.objects {
            lines.push_str(&serde_json::to_string(object)?);
            lines.push('\n');
        }
        fs::write(folder.join("objects.jsonl"), lines)?;
        fs::write(folder.join("ec2.jsonl"), &self.journal)?;
        Ok(())
    }
}

fn is_recorded(StoredObject { key, value }: &StoredObject) -> bool {
    let Some(path) = key.strip_prefix("/registry/") else { return false };
    let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let bootstrap = value.pointer("/metadata/labels/kubernetes.io~1bootstrapping").is_some();
    let lab = name.contains("kwok") || name.starts_with("croft-lab");
    let system = path.starts_with("serviceaccounts/kube-system/") || name.starts_with("system:");
    !(bootstrap || lab || system || LEFT_OUT.iter().any(|prefix| path.starts_with(prefix)))
}

fn is_change(line: &str) -> bool {
    let entry: Value = serde_json::from_str(line).unwrap_or_default();
    let action = entry.pointer("/call/1/action").and_then(Value::as_str).unwrap_or_default();
    !READS.iter().any(|word| action.starts_with(word))
}
