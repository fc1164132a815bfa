//! What the tests against real servers share.

pub mod ground;
pub mod pods;
pub mod replicas;
pub mod reviewer;
pub mod stack;
pub mod corpus;
pub mod recorder;
