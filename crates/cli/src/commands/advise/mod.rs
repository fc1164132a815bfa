//! `croft advise`: what each constraint costs, and the change that saves it.

mod command;
mod write;

pub(crate) use command::{AdviseArgs, run};
