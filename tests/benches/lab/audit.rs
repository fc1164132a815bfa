//! The controller's requests to the API server, counted from its audit log.

use std::collections::BTreeMap;

use croft_testkit::Options;
use croft_tests::audit::{CONTROLLER_USER, Request};

/// The controller's requests by the audit log of one control plane.
#[derive(Debug)]
pub(crate) struct Audit(croft_tests::audit::Audit);

/// Requests by verb and resource, such as `patch nodeclaims/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(pub(crate) BTreeMap<String, u64>);

impl Audit {
    /// Options with which an API server writes this log.
    ///
    /// # Errors
    /// If the log's folder can't be created.
    pub(crate) fn new(options: Options) -> anyhow::Result<(Self, Options)> {
        let (audit, options) = croft_tests::audit::Audit::new(options, &[CONTROLLER_USER])?;
        Ok((Self(audit), options))
    }

    /// The requests since the last call.
    ///
    /// # Errors
    /// If the log can't be read.
    pub(crate) fn take(&mut self) -> anyhow::Result<Requests> {
        let mut requests = Requests::default();
        for Request { verb, resource, code, .. } in self.0.take()? {
            let mut name = format!("{verb} {resource}");
            // A request that failed, for example by a conflict, was repeated.
            if code >= 400 {
                name.push_str(&format!(" ({code})"));
            }
            *requests.0.entry(name).or_default() += 1;
        }
        Ok(requests)
    }
}

impl Requests {
    /// Number of requests whose name passes `keep`.
    pub(crate) fn count(&self, of: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|(name, _)| of(name)).map(|(_, count)| count).sum()
    }

    /// Requests caused by instances; the Lease, events of pods and nominations are counted separately.
    pub(crate) fn for_instances(&self) -> u64 {
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
