//! What every server of Croft needs and no decision depends on: it knows processes, sockets and clocks,
//! and nothing of tenants, pods or machines.
//!
//! ```text
//!                    process::main  (crypto provider, arguments, telemetry, signals, runtime)
//!                          │
//!        ┌─────────────────┼──────────────────┬───────────────────┐
//!        ▼                 ▼                  ▼                   ▼
//!   observe::serve    serve::serve       lease::elect        certificate::*
//!   /metrics          TLS or plain,      one acts,           CA and leaf, made,
//!   /healthz /readyz  bounded, drained   until a deadline    kept, rotated, read
//!        ▲                 ▲                  │                   │
//!     health            shutdown           clock          tls::TlsSlot (swapped whole)
//! ```
//!
//! Time enters through [`clock::Clock`] and nowhere else. ring is the one crypto provider;
//! [`process::main`] installs it before anything asks for one.

pub mod certificate;
pub mod clock;
pub mod connect;
pub mod health;
pub mod lease;
pub mod observe;
pub mod process;
pub mod serve;
pub mod share;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
