//! Reads Kubernetes and Croft manifests and returns typed objects as the API server would store them: decoded, defaulted,
//! validated. No network; the only I/O is reading files.
//!
//! ```text
//!  paths ──files──▶ text ──tree──▶ values with lines ──decode──▶ typed objects ──defaults, check──▶ Input
//! ```
//!
//! A file may hold several documents, a `List`, or JSON; a folder stands for the YAML and JSON files in it; `-` is
//! standard input. Of other controllers' kinds the pod templates are read; kinds that Croft doesn't use are counted and skipped. An unknown field is refused in Croft's own kinds,
//! and ignored with a warning in those of Kubernetes, whose cluster may be newer. All problems are reported at once, each with
//! file, line, object and field. The `croft` command line and the tests that compare it with a real API server call this
//! crate.
//!
//! | entry point | from | to |
//! |---|---|---|
//! | [`load`], [`parse`] | files, text | [`Input`]: typed, defaulted, validated |
//! | [`load_raw`] | files | [`RawObject`]s of any kind, as written |
//! | [`apply_admission_plugins`] | a pod about to be created | what LimitRanger, Priority and others write into it |
//! | [`prune`] | a JSON object of one of Croft's kinds | the same without unknown fields, and its errors |
//! | [`to_yaml`] | JSON values | YAML that `kubectl` reads as the same values |
//! | [`each_kind`] | the name of a macro | its call with every kind of an [`Input`] |
//!
//! | module | owns |
//! |---|---|
//! | `files`, `tree`, `decode`, `mistakes` | text to values with lines, and values to types |
//! | `kinds`, `steps`, `croft_kinds` | which kinds there are, and how each is defaulted and validated |
//! | `custom` | the pod templates in objects of other controllers' kinds |
//! | `defaults`, `check` | what the API server fills in, and what it refuses |
//! | `input`, `objects`, `origin`, `error`, `unknown_fields` | the result, and what is wrong with it |

mod admission_plugins;
mod check;
mod croft_kinds;
mod custom;
mod decode;
mod defaults;
mod error;
mod files;
mod input;
mod kinds;
mod load;
mod mistakes;
mod objects;
mod origin;
mod quantity;
mod raw;
mod steps;
mod suggestion;
mod tree;
mod unknown_fields;
mod yaml;

pub use admission_plugins::{apply as apply_admission_plugins, apply_with as apply_admission_plugins_with};
pub use check::{FieldErrors, object_name};
pub use croft_kinds::{Pruned, prune};
pub use custom::{CustomTemplate, CustomWorkload};
pub use error::{InputError, Problem};
pub use input::{Input, KindGroup};
pub use kinds::{SNAPSHOT_KIND, SNAPSHOT_VERSION};
pub use load::{LoadOptions, load, parse};
pub use objects::{Objects, Sourced};
pub use origin::Origin;
pub use quantity::sum as sum_quantities;
pub use raw::{RawObject, RawObjects, load as load_raw};
pub use suggestion::closest;
pub use yaml::{WriteError, to_yaml};
