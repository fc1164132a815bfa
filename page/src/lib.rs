//! The page: the cluster in a browser, read-only. HTTPS requests in, JSON and static files out.
//!
//! ```text
//!  API server ──watches──▶ state: cluster (trimmed objects, log) ──build──▶ model ──▶ views ──JSON──▶ browser, croft
//!       ▲                                                    └──changes──▶ http::events ──▶ open streams
//!       └──TokenReview, SubjectAccessReview── access ──Scope──▶ each view
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`run`], [`args`] | start, wiring and drain of the process |
//! | [`access`] | a token to an identity, an identity to a [`access::Scope`]: the namespaces and tenants that a reader may see |
//! | [`cluster`] | the objects with the fields that are kept, the decision log |
//! | [`model`] | what is shown of them, and what differs between two models; pure |
//! | [`state`] | the watches, and when the model is built again |
//! | [`views`] | each view of the model for a scope; pure |
//! | [`metrics`], [`definitions`] | the counters of `/metrics`, and their names |
//! | [`http`] | routes, sessions, headers, bounds, events, static files |
//!
//! No route writes anything. A view takes a scope, and there is no view without one. designs/page.md says why.

pub mod access;
pub mod args;
pub mod cluster;
pub mod definitions;
pub mod http;
pub mod metrics;
pub mod model;
pub mod run;
pub mod state;
pub mod views;
