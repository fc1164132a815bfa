//! Certificates of a webhook: made here, made by cert-manager, or read from files.
//!
//! ```text
//!  self          material (pure: what should the Secret hold next?)
//!                   │ under a Lease
//!  cert-manager     ▼
//!     └─────▶ Secret ──watch──▶ every replica ──▶ TlsSlot
//!  files ──────────poll─────────────▶
//! ```
//!
//! `material` decides, `keeper` writes the Secret, `follow` reads it or the files into a
//! [`TlsSlot`](crate::tls::TlsSlot).

pub mod facts;
pub mod follow;
pub mod keeper;
pub mod material;
