//! Random numbers from a seed, equal on every computer.

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64 (Steele, Lea, Flood 2014): the generator of every test, simulation and bench.
///
/// ```
/// use croft_simkit::Random;
///
/// let (mut first, mut second) = (Random::new(7), Random::new(7));
/// assert_eq!(first.below(100), second.below(100));
/// assert!((3..=5).contains(&first.between(3, 5)));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ GAMMA)
    }

    /// The stream whose state begins with `state`, for benches whose worlds are compared across versions.
    #[must_use]
    pub const fn from_state(state: u64) -> Self {
        Self(state)
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`. If `end` is 0 the answer is 0 and nothing is drawn.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// An index of a list with `len` elements; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `chance` of 1000 cases.
    pub const fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// True in `chance` of 100 cases.
    pub const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One element; `None` if there is none, and then nothing is drawn.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.index(all.len());
        all.get(at)
    }

    /// One element of a list that isn't empty.
    ///
    /// # Panics
    /// If the list is empty.
    #[allow(clippy::expect_used, reason = "an empty list is a mistake of the test")]
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        *self.pick(all).expect("a list to choose from is empty")
    }

    /// A stream of its own, so that what draws from one doesn't shift the other.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

/// Xorshift64* (Vigna 2014): the stream of the workloads of `bench-scheduler`, whose plans and figures are compared across
/// versions. New code takes [`Random`].
#[derive(Clone, Debug)]
pub struct Xorshift(u64);

impl Xorshift {
    /// From a state, which must not be zero.
    #[must_use]
    pub const fn new(state: u64) -> Self {
        Self(state)
    }

    /// An index of a list with `len` elements; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap_or(0) % len.max(1)
    }

    /// One element of a list that isn't empty.
    ///
    /// # Panics
    /// If the list is empty.
    #[allow(clippy::indexing_slicing, reason = "an empty list is a mistake of the bench")]
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_stream_that_it_gave() {
        // The simulation's seeds, and the worlds of the bench, are only known by these numbers.
        let mut random = Random::new(1);
        assert_eq!(random.next_u64(), 0xE99F_F867_DBF6_82C9);
        let mut stream = Xorshift::new(0xD5A5_1234_5678_9ABC);
        let drawn: Vec<usize> = (0..4).map(|_| stream.index(1000)).collect();
        assert_eq!(drawn, [819, 881, 68, 720]);
    }

    #[test]
    fn an_empty_range_draws_nothing() {
        let mut random = Random::new(1);
        assert_eq!((random.below(0), random.pick::<u8>(&[])), (0, None));
        assert_eq!(random.next_u64(), Random::new(1).next_u64());
    }
}
