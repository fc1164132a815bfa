//! Amounts that one user holds of those that all readers share. Before a request's user is known, it counts by its address, as in every server
//! of [`croft_runtime::serve`].

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicUsize},
};

use croft_runtime::share::Source;
use tokio::sync::Mutex;

use super::identity::Identity;

/// The prefix of the users that are ServiceAccounts; namespace and name follow.
const ACCOUNT: &str = "system:serviceaccount:";

/// The amounts that one user holds.
#[derive(Debug, Default)]
pub struct Held {
    /// Requests in flight.
    pub requests: AtomicUsize,
    /// Open streams of events.
    pub streams: AtomicUsize,
    /// Tokens whose answer is kept.
    pub tokens: AtomicUsize,
    /// Identities whose rights are kept.
    pub identities: AtomicUsize,
    /// The user's turn to wait for a computation: each user has one in the queue, so users take turns.
    pub computing: Arc<Mutex<()>>,
    /// The user's turn to ask for rights; requests that come together ask once.
    pub reviewing: Mutex<()>,
}

/// The source by which a user counts. Whoever may create a ServiceAccount may create many, so those of a tenant count as one, and
/// so do those of another namespace. `owners` has the tenant of each namespace.
#[must_use]
pub fn source(identity: &Identity, owners: &BTreeMap<String, String>) -> Source {
    let account = identity.user.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'));
    Source::User(match account {
        Some((namespace, _)) => match owners.get(namespace) {
            Some(tenant) => format!("{ACCOUNT}tenant {tenant}"),
            None => format!("{ACCOUNT}{namespace}"),
        },
        None => identity.user.clone(),
    })
}

/// The source of tokens that the API server doesn't accept.
#[must_use]
pub fn unknown() -> Source {
    Source::User(String::new())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    #[test]
    fn service_accounts_count_by_tenant_else_by_namespace() {
        let owners = BTreeMap::from(["a-1", "a-2"].map(|of| (of.to_owned(), "a".to_owned())));
        let of = |user: &str| {
            let user = UserInfo { username: Some(user.to_owned()), ..UserInfo::default() };
            source(&Identity::from(user), &owners)
        };
        assert_eq!(of("system:serviceaccount:a-1:x"), of("system:serviceaccount:a-2:y"));
        assert_eq!(of("system:serviceaccount:other:x"), of("system:serviceaccount:other:y"));
        assert_ne!(of("system:serviceaccount:other:x"), of("system:serviceaccount:a-1:x"));
        assert_ne!(of("jane"), of("joe"));
        assert_ne!(of("tenant a"), of("system:serviceaccount:a-1:x"));
    }
}
