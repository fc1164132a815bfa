//! What a webhook replica has seen, written on its Lease: a Tenant is Ready when every replica enforces its
//! generation.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// Annotation of a replica's Lease.
pub const SEEN_ANNOTATION: &str = "croft.dev/seen";
/// Annotation of a replica's Lease: what keeps API servers from asking it, or soon will, in a sentence.
pub const TROUBLE_ANNOTATION: &str = "croft.dev/trouble";
/// Label of a replica's Lease; its value is [`WEBHOOK`].
pub const REPLICA_LABEL: &str = "croft.dev/replica-of";
/// Value of [`REPLICA_LABEL`] on the webhook's replicas.
pub const WEBHOOK: &str = "webhook";

/// So much of a UID tells tenants apart, names that are used again included, and lets 10,000 tenants
/// fit into an annotation.
const UID_CHARS: usize = 13;

/// What a replica says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it enforces.
    pub seen: Seen,
    /// What is wrong with its certificate.
    pub trouble: Option<String>,
}

impl Report {
    /// Reads it off the annotations of the replica's Lease.
    #[must_use]
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let seen = annotations.get(SEEN_ANNOTATION).map(String::as_str).unwrap_or_default();
        let Ok(seen) = seen.parse();
        let trouble = annotations.get(TROUBLE_ANNOTATION).filter(|text| !text.is_empty()).cloned();
        Self { seen, trouble }
    }

    /// The annotations of the replica's Lease.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, String> {
        let trouble = self.trouble.iter().map(|text| (TROUBLE_ANNOTATION.to_owned(), text.clone()));
        trouble.chain([(SEEN_ANNOTATION.to_owned(), self.seen.to_string())]).collect()
    }
}

/// Generations by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(BTreeMap<String, i64>);

impl Seen {
    /// Notes that `generation` of the object `uid` is enforced.
    pub fn insert(&mut self, uid: &str, generation: i64) {
        self.0.insert(short(uid), generation);
    }

    /// True if `generation` of the object `uid`, or a later one, is enforced.
    #[must_use]
    pub fn covers(&self, uid: &str, generation: i64) -> bool {
        self.0.get(&short(uid)).is_some_and(|seen| *seen >= generation)
    }
}

fn short(uid: &str) -> String {
    uid.chars().take(UID_CHARS).collect()
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (uid, generation)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{uid}={generation}")?;
        }
        Ok(())
    }
}

impl FromStr for Seen {
    type Err = std::convert::Infallible;

    /// What can't be read has not been seen.
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
    fn what_is_written_is_read() {
        let mut seen = Seen::default();
        assert_eq!(seen.to_string().parse(), Ok(seen.clone()));
        seen.insert("705ab4f5-6393-11e8-b7cc-42010a800002", 3);
        seen.insert("815ab4f5-6393-11e8-b7cc-42010a800002", 1);
        let read: Seen = seen.to_string().parse().unwrap();
        assert_eq!(read, seen);
        assert!(read.covers("705ab4f5-6393-11e8-b7cc-42010a800002", 3));
        assert!(!read.covers("705ab4f5-6393-11e8-b7cc-42010a800002", 4));
        assert!(!read.covers("905ab4f5-6393-11e8-b7cc-42010a800002", 1));
        assert_eq!("nonsense,a=b,=".parse(), Ok(Seen::default()));

        let report = Report { seen, trouble: Some("expired".to_owned()) };
        assert_eq!(Report::read(&report.write()), report);
        let well = Report { trouble: None, ..report };
        assert_eq!(Report::read(&well.write()), well);
    }
}
