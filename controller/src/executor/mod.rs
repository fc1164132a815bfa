//! Carries out actions: the only place with effects.

mod create;
mod dispatch;
mod launch;
mod record;
mod register;
mod verify;

pub use dispatch::Executor;
