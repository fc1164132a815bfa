//! Deterministic pseudo-random numbers for the searches.

/// Xorshift64*.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// `seed` must not be zero.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % n.max(1)
    }

    /// Between 0 and 1.
    #[expect(clippy::cast_precision_loss, reason = "31 bits")]
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 33) as f64 / (1u64 << 31) as f64
    }
}
