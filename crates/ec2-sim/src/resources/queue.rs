//! Queues.

use std::collections::VecDeque;

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) sent: u64,
}

impl Queue {
    /// Puts a message on it, visible from `now` on.
    pub(crate) fn put(&mut self, body: &str, now: u64) {
        self.sent += 1;
        let message = Message { id: self.sent, body: body.to_owned(), sent: now, visible: now, receipt: 0 };
        self.messages.push_back(message);
    }
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
