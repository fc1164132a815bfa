//! Requests to the API server by user, from its audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use croft_testkit::{Component, Options};
use serde::Deserialize;
use serde_json::{Value, json};

/// The controller's user, as the manifests install it.
pub const CONTROLLER_USER: &str = "system:serviceaccount:croft-system:croft-controller";
/// The webhook's user, as the manifests install it.
pub const WEBHOOK_USER: &str = "system:serviceaccount:croft-system:croft-webhook";

/// The page's user, as the manifests install it.
pub const PAGE_USER: &str = "system:serviceaccount:croft-system:croft-page";

/// The key of a user's extra fields that has the token's id.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The audit log of one control plane.
#[derive(Debug)]
pub struct Audit {
    log: PathBuf,
    read: u64,
    _folder: tempfile::TempDir,
}

/// An answered request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The user's name.
    pub user: String,
    /// The verb, as in RBAC.
    pub verb: String,
    /// The resource's group; empty for the core group.
    pub group: String,
    /// The resource, with its subresource if there is one, such as `nodes` and `pods/status`.
    pub resource: String,
    /// The object's name, if the request has one.
    pub name: String,
    /// The HTTP status.
    pub code: u16,
    /// The answer's message, unless it is an object.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Option<Reference>,
    #[serde(default)]
    response_status: Answer,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_group: String,
    resource: String,
    subresource: String,
    name: String,
}

impl Audit {
    /// Options with which an API server logs the requests of `users` after each answer, without bodies.
    ///
    /// # Errors
    /// If the log's folder can't be created.
    pub fn new(options: Options, users: &[&str]) -> anyhow::Result<(Self, Options)> {
        Self::of(options, json!({"level": "Metadata", "users": users}))
    }

    /// The same of everybody's evictions and deletions of pods.
    ///
    /// # Errors
    /// When there is no place for the log.
    pub fn of_pods(options: Options) -> anyhow::Result<(Self, Options)> {
        let resources = json!([{"group": "", "resources": ["pods", "pods/eviction"]}]);
        Self::of(options, json!({"level": "Metadata", "verbs": ["create", "delete"], "resources": resources}))
    }

    fn of(options: Options, rule: Value) -> anyhow::Result<(Self, Options)> {
        let folder = tempfile::Builder::new().prefix("croft-audit-").tempdir()?;
        let (policy, log) = (folder.path().join("policy.json"), folder.path().join("audit.log"));
        // A watch ends when its client ends, so it is logged when it is answered.
        let rules = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [rule, {"level": "None"}],
        });
        std::fs::write(&policy, rules.to_string())
            .with_context(|| format!("failed to write {}", policy.display()))?;
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let options = options
            .flag(Component::ApiServer, flag("audit-policy-file", &policy))
            .flag(Component::ApiServer, flag("audit-log-path", &log));
        Ok((Self { log, read: 0, _folder: folder }, options))
    }

    /// The ids of the tokens with which `user` has sent requests so far, whether taken or not.
    ///
    /// # Errors
    /// If the log can't be read.
    pub fn credentials(&self, user: &str) -> anyhow::Result<BTreeSet<String>> {
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("failed to read {}", self.log.display()))?;
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        let of_user = entries.filter(|entry| entry.user.username == user);
        Ok(of_user.flat_map(|mut entry| entry.user.extra.remove(CREDENTIAL).unwrap_or_default()).collect())
    }

    /// The requests since the last call. A watch appears twice: at its start and at its end.
    ///
    /// # Errors
    /// If the log can't be read.
    pub fn take(&mut self) -> anyhow::Result<Vec<Request>> {
        let failed = || format!("failed to read {}", self.log.display());
        let mut file = std::fs::File::open(&self.log).with_context(failed)?;
        file.seek(SeekFrom::Start(self.read)).with_context(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(failed)?;
        // An incomplete line is read by the next call.
        let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
        self.read += whole.len() as u64;
        let requests = whole.lines().map(|line| Ok(Request::from(serde_json::from_str::<Entry>(line)?)));
        requests.collect::<Result<_, serde_json::Error>>().with_context(failed)
    }
}

impl From<Entry> for Request {
    fn from(entry: Entry) -> Self {
        let Entry { verb, user, object_ref, response_status } = entry;
        let Reference { api_group, resource, subresource, name } = object_ref.unwrap_or_default();
        let resource = if subresource.is_empty() { resource } else { format!("{resource}/{subresource}") };
        let Answer { code, message } = response_status;
        Self { user: user.username, verb, group: api_group, resource, name, code, message }
    }
}
