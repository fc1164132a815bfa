//! Certificates of the webhook: created here, by cert-manager, or read from files.
//!
//! ```text
//!  self          bundle (pure: the next content of the Secret)
//!                   │ secret, under a Lease
//!  cert-manager     ▼
//!     └─────▶ Secret ──watch──▶ every replica ──▶ TlsSlot
//!  files ──────────poll─────────────▶
//! ```
//!
//! `bundle` decides, `secret` writes the Secret, `watcher` reads it or the files into a
//! [`TlsSlot`](crate::tls::TlsSlot).

pub mod bundle;
pub mod info;
pub mod secret;
pub mod watcher;
