//! `croft top`: tenants, pools and nodes with their present cost.
//!
//! ```text
//!   Input, fill ──rows──▶ Rows ──▶ text, CSV, JSON, YAML      once
//!                             └──▶ live                       on a terminal, until q
//! ```

mod command;
mod fill;
mod live;
mod rows;
mod text;

pub(crate) use command::{TopArgs, run};
