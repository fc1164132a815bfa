//! One module per command: its arguments, and `run`, which [`crate::run`] calls.

pub(crate) mod admit;
pub(crate) mod advise;
pub(crate) mod audit;
pub(crate) mod break_glass;
pub(crate) mod catalog;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod cost;
pub(crate) mod debug;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod lab;
pub(crate) mod page;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod simulate;
pub(crate) mod tenant;
pub(crate) mod top;
pub(crate) mod uninstall;
pub(crate) mod version;
