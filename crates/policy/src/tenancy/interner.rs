//! Interned strings: labels repeat on every node.

use std::{collections::HashMap, sync::Arc};

/// Strings by id.
#[derive(Debug, Default)]
pub(super) struct Interner {
    ids: HashMap<Arc<str>, u32>,
    strings: Vec<Arc<str>>,
    /// The number of strings after the last sweep.
    swept: usize,
}

impl Interner {
    /// Below this number of strings no sweep pays.
    const SWEEP_ABOVE: usize = 4096;

    /// The id of `text`, which is added if it is new.
    pub(super) fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        self.insert(text.into())
    }

    /// The string with this id.
    pub(super) fn text(&self, id: u32) -> &str {
        self.strings.get(id as usize).map_or("", |text| text)
    }

    /// `text` as a string that is shared with equal labels, such as a node's host name.
    pub(super) fn shared(&mut self, text: &str) -> Arc<str> {
        let id = self.id(text);
        self.strings.get(id as usize).cloned().unwrap_or_else(|| text.into())
    }

    /// Ids of keys and values.
    pub(super) fn pairs<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Box<[(u32, u32)]> {
        pairs.map(|(key, value)| (self.id(key), self.id(value))).collect()
    }

    /// True if there are twice as many strings as after the last sweep.
    pub(super) fn needs_sweep(&self) -> bool {
        self.strings.len() > Self::SWEEP_ABOVE.max(2 * self.swept)
    }

    /// Copies the string with this id of `old`. Returns its new id.
    pub(super) fn copy(&mut self, old: &Self, id: u32) -> u32 {
        let Some(text) = old.strings.get(id as usize) else { return u32::MAX };
        match self.ids.get(text) {
            Some(id) => *id,
            None => self.insert(text.clone()),
        }
    }

    /// Ends a sweep: every string in use has been copied.
    pub(super) fn end_sweep(&mut self) {
        self.swept = self.strings.len();
    }

    fn insert(&mut self, text: Arc<str>) -> u32 {
        // Memory would end before four thousand million different strings.
        let id = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        self.strings.push(text.clone());
        self.ids.insert(text, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_change_in_a_sweep_and_strings_stay() {
        let mut strings = Interner::default();
        let used: Vec<u32> = (0..10).map(|n| strings.id(&format!("used-{n}"))).collect();
        assert_eq!(strings.id("used-3"), used[3]);
        for n in 0..Interner::SWEEP_ABOVE {
            strings.id(&format!("gone-{n}"));
        }
        assert!(strings.needs_sweep());
        let mut fresh = Interner::default();
        let moved: Vec<u32> = used.iter().rev().map(|id| fresh.copy(&strings, *id)).collect();
        fresh.end_sweep();
        assert!(!fresh.needs_sweep());
        let copied: Vec<&str> = moved.iter().rev().map(|id| fresh.text(*id)).collect();
        assert_eq!(copied, (0..10).map(|n| format!("used-{n}")).collect::<Vec<_>>());
        assert_eq!(fresh.text(10), "", "an unreferenced string is dropped");
    }
}
