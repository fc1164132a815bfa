//! `Tenant.spec.networkIsolation` on the real API server: what the running controller writes is given to an evaluator that
//! knows nothing of Croft, and its answers are compared with what the Tenants declare.

mod life;
mod matrix;
mod world;
