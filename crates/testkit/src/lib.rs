//! The real control plane on loopback, for tests and for `croft lab`.
//!
//! ```text
//!   tools/lab/build.sh ──▶ cache, by version ──▶ Assets
//!                                            │
//!   Options ──▶ ControlPlane::start ─────────┴──▶ etcd ◀── kube-apiserver ◀─┬─ kube-controller-manager
//!                 │      │                                    ▲            ├─ kube-scheduler
//!                 │      └─ Reaper: ends them all when        │            └─ KWOK, for the kubelets
//!                 │         this process ends, however       │
//!                 └─ Authority: certificates, kubeconfigs ────┘ clients of any identity
//! ```
//!
//! Everything is as in a cluster (Node and RBAC authorization, NodeRestriction, TLS between all parts) with two
//! exceptions: KWOK plays the nodes (see kubelets.yaml), and there is no Service network, so webhooks are registered by
//! URL. A control plane starts in about two seconds; each test uses its own, or its own namespace in one.
//!
//! ```no_run
//! # async fn example() -> Result<(), croft_testkit::Error> {
//! use croft_testkit::{ControlPlane, Options};
//!
//! let plane = ControlPlane::start(Options::default()).await?;
//! plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: tenant-a}}").await?;
//! let kubelet = plane.client_for("system:node:n1", &["system:nodes"]).await?;
//! # drop(kubelet); Ok(())
//! # }
//! ```

mod assets;
pub mod browser;
mod control_plane;
pub mod croft;
mod error;
pub mod files;
mod helm;
pub mod http;
mod kubelets;
mod layout;
pub mod moto;
pub mod nodes;
mod options;
mod pki;
pub mod ports;
mod process;
mod reaper;
pub mod reviewer;
mod stored;
pub mod wait;

pub use assets::{Assets, cached};
pub use browser::Browser;
pub use control_plane::{Backup, ControlPlane};
pub use croft::{Croft, CroftOptions, Detour, Part};
pub use error::Error;
pub use helm::Helm;
pub use kubelets::PLAYED;
pub use options::{Component, Options};
pub use pki::{Authority, Identity};
pub use process::{Process, Recipe, Status};
pub use reaper::Reaper;
pub use stored::StoredObject;
