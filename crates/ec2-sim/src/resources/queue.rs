//! Queues.

use std::collections::VecDeque;

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) sent: u64,
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) body: String,
    pub(crate) sent: u64,
    pub(crate) visible: u64,
    pub(crate) receipt: u64,
}
