//! The admission webhook: AdmissionReviews in over HTTPS, AdmissionReviews out.
//!
//! ```text
//!  API server ══TLS══▶ server ──bytes──▶ admit::respond ──▶ croft-policy: parse, evaluate ──▶ response ══▶
//!                        │ bounds, deadlines     ▲
//!                        │                       │ an immutable view
//!                        └─ waits for ──▶ cluster::state ◀── cluster::watch ◀── Tenant, TenantPool, CroftConfig,
//!                           a namespace          │                              Namespace, Node
//!                           that is new          └──▶ registration::replica: enforced generations, on a Lease
//!
//!  run: certificate (created, or provided) ──▶ TLS, and caBundle and address in the registration
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`run`] | start, wiring and drain of the process |
//! | [`server`] | HTTP: what is read of a review, for how long, and how many at once |
//! | [`admit`], [`response`], [`outcome`] | one review in, one review out |
//! | [`cluster`] | watches, index and state |
//! | [`registration`] | webhook configurations, their scope, and the replica's Lease |
//! | [`definitions`], [`metrics`] | names and values of metrics |
//!
//! Between the bytes of a review and the bytes of its answer there is no I/O, no lock and no await. What may take time
//! (reading, waiting for a namespace) comes before and is bounded. `croft admit` calls the same [`admit::respond`].

pub mod admit;
pub mod args;
pub mod cluster;
pub mod definitions;
pub mod metrics;
pub mod outcome;
pub mod registration;
pub mod response;
pub mod run;
pub mod server;
