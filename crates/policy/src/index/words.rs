//! Every word once: labels repeat themselves on every node.

use std::{collections::HashMap, sync::Arc};

/// Words by their places.
#[derive(Debug, Default)]
pub(super) struct Words {
    places: HashMap<Arc<str>, u32>,
    words: Vec<Arc<str>>,
    /// How many there were after the last sweep.
    swept: usize,
}

impl Words {
    /// Below this it isn't worth looking for words that nobody uses any more.
    const SWEEP_ABOVE: usize = 4096;

    /// The place of `word`, which it gets if it has none.
    pub(super) fn place(&mut self, word: &str) -> u32 {
        if let Some(place) = self.places.get(word) {
            return *place;
        }
        self.insert(word.into())
    }

    /// What is at `place`.
    pub(super) fn at(&self, place: u32) -> &str {
        self.words.get(place as usize).map_or("", |word| word)
    }

    /// `word` as text that is shared with the labels that say the same, as the host name of a node does.
    pub(super) fn share(&mut self, word: &str) -> Arc<str> {
        let place = self.place(word);
        self.words.get(place as usize).cloned().unwrap_or_else(|| word.into())
    }

    /// Places of keys and values.
    pub(super) fn pairs<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Box<[(u32, u32)]> {
        pairs.map(|(key, value)| (self.place(key), self.place(value))).collect()
    }

    /// True if there are twice as many as after the last sweep.
    pub(super) fn is_swollen(&self) -> bool {
        self.words.len() > Self::SWEEP_ABOVE.max(2 * self.swept)
    }

    /// Takes over what `old` has at `place`, and says where it is now.
    pub(super) fn keep(&mut self, old: &Self, place: u32) -> u32 {
        let Some(word) = old.words.get(place as usize) else { return u32::MAX };
        match self.places.get(word) {
            Some(place) => *place,
            None => self.insert(word.clone()),
        }
    }

    /// Everything that is used has been taken over.
    pub(super) fn swept(&mut self) {
        self.swept = self.words.len();
    }

    fn insert(&mut self, word: Arc<str>) -> u32 {
        // Four thousand million different words would not fit into memory before.
        let place = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        self.words.push(word.clone());
        self.places.insert(word, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_meaning_over_a_sweep() {
        let mut words = Words::default();
        let used: Vec<u32> = (0..10).map(|n| words.place(&format!("used-{n}"))).collect();
        assert_eq!(words.place("used-3"), used[3]);
        for n in 0..Words::SWEEP_ABOVE {
            words.place(&format!("gone-{n}"));
        }
        assert!(words.is_swollen());
        let mut fresh = Words::default();
        let moved: Vec<u32> = used.iter().rev().map(|place| fresh.keep(&words, *place)).collect();
        fresh.swept();
        assert!(!fresh.is_swollen());
        let said: Vec<&str> = moved.iter().rev().map(|place| fresh.at(*place)).collect();
        assert_eq!(said, (0..10).map(|n| format!("used-{n}")).collect::<Vec<_>>());
        assert_eq!(fresh.at(10), "", "what nobody uses is gone");
    }
}
