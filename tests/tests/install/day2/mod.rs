//! Installations that are applied again, upgraded, rolled back and stopped, under a stream of attacks.

mod break_glass;
mod reapply;
