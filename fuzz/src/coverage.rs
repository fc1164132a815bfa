//! Which branches an input took, where the program was built with LLVM's inline 8-bit counters (`make fuzz` does:
//! `-C passes=sancov-module` is the stable compiler's).
//!
//! The counters lie in a section of their own; `sancov.c`, which is linked in then, says where. They are read and cleared
//! through /proc/self/mem, which needs no unsafe code: it is a copy of some ten kilobytes per input.

use std::{
    env,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
};

/// The variable in which the linked-in `sancov.c` says where the counters are: two addresses.
const WHERE: &str = "CROFT_FUZZ_COUNTERS";

/// The counters, and which of them have been seen to be how high.
pub struct Coverage {
    memory: Option<(File, u64)>,
    now: Vec<u8>,
    zeros: Vec<u8>,
    /// A bit for each power of two that a counter has reached, as AFL has it: a loop that turns more often counts.
    reached: Vec<u8>,
}

impl Coverage {
    /// Finds the counters, if there are any.
    #[must_use]
    pub fn find() -> Self {
        let found = env::var(WHERE).ok().and_then(|text| {
            let (begin, end) = text.split_once(' ')?;
            let (begin, end) = (begin.parse::<u64>().ok()?, end.parse::<u64>().ok()?);
            let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").ok()?;
            Some((memory, begin, usize::try_from(end.checked_sub(begin)?).ok()?))
        });
        let size = found.as_ref().map_or(0, |(_, _, size)| *size);
        let memory = found.map(|(memory, begin, _)| (memory, begin));
        Self { memory, now: vec![0; size], zeros: vec![0; size], reached: vec![0; size] }
    }

    /// An input is about to be tried.
    pub fn begin(&mut self) {
        if let Some((memory, begin)) = &self.memory
            && memory.write_all_at(&self.zeros, *begin).is_err()
        {
            self.memory = None;
        }
    }

    /// True if a counter is higher than it has been, by a power of two.
    pub fn is_new(&mut self) -> bool {
        let Some((memory, begin)) = &self.memory else { return false };
        if memory.read_exact_at(&mut self.now, *begin).is_err() {
            self.memory = None;
            return false;
        }
        let mut new = false;
        for (count, reached) in self.now.iter().zip(&mut self.reached) {
            if let Some(log) = count.checked_ilog2() {
                let bit = 1 << log;
                new |= *reached & bit == 0;
                *reached |= bit;
            }
        }
        new
    }

    /// Branches that have been taken, and how many there are.
    #[must_use]
    pub fn seen(&self) -> Option<(usize, usize)> {
        self.memory.as_ref()?;
        Some((self.reached.iter().filter(|reached| **reached != 0).count(), self.reached.len()))
    }
}
