//! The admission webhook: AdmissionReviews in over HTTPS, AdmissionReviews out.
//!
//! ```text
//!  API server ══TLS══▶ server ──bytes──▶ admit::respond ──▶ croft-policy: parse, judge ──▶ response ══▶
//!                        │ bounds, deadlines     ▲
//!                        │                       │ a view that doesn't change
//!                        └─ waits for ──────▶  state  ◀── watch ◀── Tenant, TenantPool, CroftConfig,
//!                           a namespace          │                  Namespace, Node
//!                           not known yet        └──▶ replica: which generations are enforced, on its Lease
//!
//!  run: certificate (made, or somebody else's) ──▶ TLS, and caBundle and address in the registration
//! ```
//!
//! Between the bytes of a review and the bytes of its answer there is no I/O, no lock and no await; what may
//! take time (reading, waiting for a namespace) is before it and bounded. The same [`admit::respond`] answers
//! `croft admit`.

pub mod admit;
pub mod args;
pub mod hooks;
pub mod metrics;
pub mod registration;
pub mod replica;
pub mod response;
pub mod run;
pub mod scope;
pub mod server;
pub mod state;
pub mod watch;
