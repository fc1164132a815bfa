//! The process's command line, and the settings that deciders use.

pub mod args;
pub mod settings;
