//! The cost of the month beside the lower bound of any cluster's cost.

use std::{fmt, time::Duration};

use crate::meter::Spent;

/// Integrals over time, in dollars.
#[derive(Debug, Default)]
pub struct Bill {
    spent: Spent,
    least: f64,
}

impl Bill {
    pub fn add(&mut self, least_per_hour: f64, lasted: Duration, spent: Spent) {
        self.least += least_per_hour * lasted.as_secs_f64() / 3600.0;
        self.spent.paid += spent.paid;
        self.spent.waiting += spent.waiting;
    }

    /// Cost above the bound, as a share of it, with the charge for waiting pods: without it, being late would pay.
    pub fn gap(&self) -> f64 {
        (self.spent.paid + self.spent.waiting) / self.least - 1.0
    }

    /// The same for instances alone.
    pub fn gap_paid(&self) -> f64 {
        self.spent.paid / self.least - 1.0
    }
}

impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spent: Spent { paid, waiting }, least } = self;
        write!(
            f,
            "${paid:.2} paid and ${waiting:.2} charged for waiting pods, at least ${least:.2}, {:.2} % above",
            self.gap() * 100.0
        )
    }
}
