//! Changes of the watched objects, as the index takes them.

use croft_policy::{model, stored::Decoded};

use crate::cluster::views::ConfigView;

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tenant = 0,
    Pool = 1,
    Config = 2,
    Namespace = 3,
    Node = 4,
}

/// The number of watched kinds.
pub(crate) const KINDS: usize = 5;

/// A watched object, decoded.
pub(crate) enum Item {
    Tenant {
        tenant: Decoded<model::Tenant>,
        uid: String,
        generation: i64,
    },
    Pool {
        pool: Decoded<model::Pool>,
        uid: String,
    },
    Config {
        name: String,
        settings: Box<ConfigView>,
    },
    Namespace(model::Namespace),
    /// A namespace that is being deleted. No object is created in it any more, so a request about its name is about the
    /// next namespace of that name, whose labels and owner may differ.
    TerminatingNamespace(String),
    Node(model::Node),
}

/// An event of a watch.
pub(crate) enum Change {
    /// A list begins.
    ListStarted(Kind),
    /// An object was added or changed.
    Upserted(Kind, Box<Item>),
    /// An object was deleted.
    Deleted(Kind, String),
    /// The list is complete.
    ListCompleted(Kind),
}
