//! The reader of a request: identity by TokenReview, scope by SubjectAccessReview, both by the API server.
//!
//! ```text
//!  token ──identity (cached 10 s)──▶ Identity ──reviewer (granted 10 s, refused 60 s)──▶ Scope
//! ```

pub mod held;
pub mod identity;
pub mod reviewer;
pub mod scope;

pub use held::Held;
pub use identity::Identity;
pub use reviewer::{Access, Reviewer};
pub use scope::{AccessError, Scope};
