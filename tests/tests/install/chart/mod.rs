//! The Helm charts: what they render is valid for the API server and for the processes, for a matrix of values; they
//! install, and leave nothing stuck when they are uninstalled. The chart of a tenant, and what GitOps tools compare.

mod install;
mod matrix;
mod metrics;
mod render;
mod tenant;
