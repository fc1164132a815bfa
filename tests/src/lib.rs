//! What the tests against real servers share.

pub mod corpus;
pub mod ground;
pub mod pods;
pub mod recorder;
pub mod replicas;
pub mod stack;
