//! The status of a webhook replica, written on its Lease: the generation of each Tenant that it enforces, and what is
//! wrong with its certificate.
//!
//! The webhook writes it; the controller sets a Tenant Ready once every replica enforces its generation.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    definitions::{
        CERTIFICATE_ERROR_ANNOTATION, OBSERVED_GENERATIONS_ANNOTATION, REGISTERED_MUTATION_ANNOTATION,
    },
    tenancy::model::Mutation,
};

/// Value of [`REPLICA_LABEL`](crate::definitions::REPLICA_LABEL) on the webhook's replicas.
pub const WEBHOOK: &str = "webhook";

/// Characters of a UID that are kept: enough to tell objects of one name apart, and 10,000 tenants fit into an
/// annotation.
const UID_CHARS: usize = 13;

/// The status of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The generations that it enforces.
    pub observed: ObservedGenerations,
    /// The error of its certificate, as a sentence; `None` without one.
    pub certificate_error: Option<String>,
    /// The mode for which it has written the webhook configurations; `None` if another replica keeps them.
    pub registered: Option<Mutation>,
}

impl ReplicaStatus {
    /// Reads the annotations of the replica's Lease. Absent or malformed annotations count as nothing observed.
    #[must_use]
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let observed =
            annotations.get(OBSERVED_GENERATIONS_ANNOTATION).map(String::as_str).unwrap_or_default();
        let Ok(observed) = observed.parse();
        let certificate_error =
            annotations.get(CERTIFICATE_ERROR_ANNOTATION).filter(|text| !text.is_empty()).cloned();
        let registered =
            annotations.get(REGISTERED_MUTATION_ANNOTATION).and_then(|mode| Mutation::parse(mode));
        Self { observed, certificate_error, registered }
    }

    /// The annotations of the replica's Lease.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, String> {
        let certificate_error =
            self.certificate_error.iter().map(|text| (CERTIFICATE_ERROR_ANNOTATION.to_owned(), text.clone()));
        let registered = self
            .registered
            .iter()
            .map(|mode| (REGISTERED_MUTATION_ANNOTATION.to_owned(), mode.as_str().to_owned()));
        certificate_error
            .chain(registered)
            .chain([(OBSERVED_GENERATIONS_ANNOTATION.to_owned(), self.observed.to_string())])
            .collect()
    }
}

/// The generation of each object that is enforced, by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedGenerations(BTreeMap<String, i64>);

impl ObservedGenerations {
    /// Records that `generation` of the object `uid` is enforced.
    pub fn insert(&mut self, uid: &str, generation: i64) {
        self.0.insert(short_uid(uid), generation);
    }

    /// True if `generation` of the object `uid`, or a later one, is enforced.
    #[must_use]
    pub fn covers(&self, uid: &str, generation: i64) -> bool {
        self.0.get(&short_uid(uid)).is_some_and(|observed| *observed >= generation)
    }
}

fn short_uid(uid: &str) -> String {
    uid.chars().take(UID_CHARS).collect()
}

impl fmt::Display for ObservedGenerations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (uid, generation)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{uid}={generation}")?;
        }
        Ok(())
    }
}

impl FromStr for ObservedGenerations {
    type Err = std::convert::Infallible;

    /// Ignores pairs that can't be parsed.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pairs = text.split(',').filter_map(|pair| {
            let (uid, generation) = pair.split_once('=')?;
            Some((uid.to_owned(), generation.parse().ok()?))
        });
        Ok(Self(pairs.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_as_it_was_written() {
        let mut observed = ObservedGenerations::default();
        assert_eq!(observed.to_string().parse(), Ok(observed.clone()));
        observed.insert("705ab4f5-6393-11e8-b7cc-42010a800002", 3);
        observed.insert("815ab4f5-6393-11e8-b7cc-42010a800002", 1);
        let read: ObservedGenerations = observed.to_string().parse().unwrap();
        assert_eq!(read, observed);
        assert!(read.covers("705ab4f5-6393-11e8-b7cc-42010a800002", 3));
        assert!(!read.covers("705ab4f5-6393-11e8-b7cc-42010a800002", 4));
        assert!(!read.covers("905ab4f5-6393-11e8-b7cc-42010a800002", 1));
        assert_eq!("nonsense,a=b,=".parse(), Ok(ObservedGenerations::default()));

        let report = ReplicaStatus {
            observed,
            certificate_error: Some("expired".to_owned()),
            registered: Some(Mutation::Policy),
        };
        assert_eq!(ReplicaStatus::read(&report.write()), report);
        let healthy = ReplicaStatus { certificate_error: None, registered: None, ..report };
        assert_eq!(ReplicaStatus::read(&healthy.write()), healthy);
    }
}
