//! Readiness as a set of named gates, all of which must be open.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The gates of `/readyz`.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Vec<(&'static str, Gate)>>>);

/// One condition of readiness; closed at first.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Opens or closes the gate.
    pub fn set(&self, open: bool) {
        self.0.store(open, Ordering::Release);
    }

    /// True while the gate is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Health {
    /// Adds a closed gate that `/readyz` shows as `name`.
    #[must_use]
    pub fn gate(&self, name: &'static str) -> Gate {
        let gate = Gate::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, gate.clone()));
        gate
    }

    /// Whether every gate is open, and a line for each.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let mut ready = true;
        for (name, gate) in gates.iter() {
            let open = gate.is_open();
            ready &= open;
            // Writing into a String can't fail.
            let _ = writeln!(text, "[{}] {name}", if open { '+' } else { '-' });
        }
        (ready, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_if_every_gate_is_open() {
        let health = Health::default();
        let (first, second) = (health.gate("first"), health.gate("second"));
        first.set(true);
        assert_eq!(health.report(), (false, "[+] first\n[-] second\n".to_owned()));
        second.set(true);
        assert!(health.report().0);
        first.set(false);
        assert!(!health.report().0);
    }
}
