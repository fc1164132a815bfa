//! What the controller asks of the API server, from the API server's own audit log.

use std::{
    collections::BTreeMap,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use croft_testkit::{Component, Options};
use serde::Deserialize;

/// Only the controller's requests, each once it is answered, without bodies.
const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
  "rules": [
    {"level": "Metadata", "users": ["system:serviceaccount:croft-system:croft-controller"]},
    {"level": "None"}
  ]
}"#;

/// The audit log of one control plane.
#[derive(Debug)]
pub(crate) struct Audit {
    log: PathBuf,
    read: u64,
    _folder: tempfile::TempDir,
}

/// Requests by what they are, such as `patch nodeclaims/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(pub(crate) BTreeMap<String, u64>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    #[serde(default)]
    object_ref: Option<Reference>,
    #[serde(default)]
    response_status: Answer,
}

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: Option<String>,
}

impl Audit {
    /// Options with which an API server keeps this log.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(crate) fn new(options: Options) -> anyhow::Result<(Self, Options)> {
        let folder = tempfile::Builder::new().prefix("croft-bench-").tempdir()?;
        let (policy, log) = (folder.path().join("policy.json"), folder.path().join("audit.log"));
        std::fs::write(&policy, POLICY).with_context(|| format!("failed to write {}", policy.display()))?;
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let options = options
            .flag(Component::ApiServer, flag("audit-policy-file", &policy))
            .flag(Component::ApiServer, flag("audit-log-path", &log));
        Ok((Self { log, read: 0, _folder: folder }, options))
    }

    /// What was asked since the last look.
    ///
    /// # Errors
    /// When the log can't be read.
    pub(crate) fn take(&mut self) -> anyhow::Result<Requests> {
        let failed = || format!("failed to read {}", self.log.display());
        let mut file = std::fs::File::open(&self.log).with_context(failed)?;
        file.seek(SeekFrom::Start(self.read)).with_context(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(failed)?;
        // A line that is being written is left to the next look.
        let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
        self.read += whole.len() as u64;
        let mut requests = Requests::default();
        for line in whole.lines() {
            let entry: Entry = serde_json::from_str(line).with_context(failed)?;
            let what = entry.object_ref.map_or_else(String::new, |object| match object.subresource {
                Some(sub) => format!("{}/{sub}", object.resource),
                None => object.resource,
            });
            let mut name = format!("{} {what}", entry.verb);
            // A conflict, say, is a request that had to be repeated.
            if entry.response_status.code >= 400 {
                name.push_str(&format!(" ({})", entry.response_status.code));
            }
            *requests.0.entry(name).or_default() += 1;
        }
        Ok(requests)
    }
}

impl Requests {
    /// How many those are whose name passes.
    pub(crate) fn count(&self, of: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|(name, _)| of(name)).map(|(_, count)| count).sum()
    }

    /// Those that follow from machines; the Lease and pods' events and nominations are counted apart.
    pub(crate) fn for_machines(&self) -> u64 {
        self.count(|name| {
            !["leases", "events", " pods"].iter().any(|other| name.contains(other))
                && !name.starts_with("watch")
        })
    }
}

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by(|a, b| b.1.cmp(a.1));
        let words: Vec<String> = all.iter().map(|(name, count)| format!("{count} {name}")).collect();
        f.write_str(&words.join(", "))
    }
}
