//! The parts of a server that no decision depends on: processes, sockets, clocks and Leases. Knows nothing of tenants,
//! pods or nodes.
//!
//! ```text
//!                    process::main  (crypto provider, arguments, telemetry, signals, runtime)
//!                          │
//!        ┌─────────────────┼──────────────────┬───────────────────┐
//!        ▼                 ▼                  ▼                   ▼
//!   observe::serve    serve::serve       lease::elect        certificate::*
//!   /metrics          TLS or plain,      one leader,         CA and leaf: created,
//!   /healthz /readyz  bounded, drained   until a deadline    stored, rotated, served
//!        ▲                 ▲                  │                   │
//!     health            shutdown           clock          tls::TlsSlot (replaced as a whole)
//! ```
//!
//! [`clock::Clock`] is the only source of time. ring is the one crypto provider; [`process::main`] installs it first.
//! Used by the webhook, the controller, ec2-sim and cloud-aws.

pub mod admin;
pub mod build;
pub mod certificate;
pub mod clock;
pub mod connect;
pub mod connect_error;
pub mod health;
pub mod kubernetes;
pub mod lease;
pub mod metric;
pub mod observe;
pub mod process;
mod proxy;
pub mod restore;
pub mod serve;
pub mod share;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
