//! The bill: what each instance costs, as EC2 charges it.
//!
//! EC2 charges each second from the launch until the instance begins to terminate, and a minute at least. One that fails before it runs costs
//! nothing, and neither does one in a capacity reservation, which is paid for whether it is used or not.

use croft_scheduler::{CapacityType, Price};

/// The seconds that are charged at least.
const LEAST_SECONDS: u64 = 60;

/// The costs of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The instance.
    pub id: String,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: CapacityType,
    /// Its price per hour when it was launched.
    pub price: Price,
    /// When it was launched, in seconds since 1970.
    pub from: u64,
    /// When it began to terminate; `None` while it runs.
    pub to: Option<u64>,
}

impl Charge {
    /// The charged seconds up to `now`, in seconds since 1970.
    #[must_use]
    pub fn seconds(&self, now: u64) -> u64 {
        match self.to {
            Some(to) => to.saturating_sub(self.from).max(LEAST_SECONDS),
            None => now.saturating_sub(self.from),
        }
    }
}

/// The charges of every instance that was launched.
#[derive(Debug, Default)]
pub(crate) struct Bill(Vec<Charge>);

impl Bill {
    pub(crate) fn charges(&self) -> &[Charge] {
        &self.0
    }

    pub(crate) fn launch(&mut self, id: &str, capacity_type: CapacityType, price: Price, at: u64) {
        self.0.push(Charge { id: id.to_owned(), capacity_type, price, from: at / 1000, to: None });
    }

    pub(crate) fn end(&mut self, id: &str, at: u64) {
        if let Some(charge) = self.0.iter_mut().rev().find(|charge| charge.id == id) {
            charge.to = Some(at / 1000);
        }
    }

    pub(crate) fn cancel(&mut self, id: &str) {
        self.0.retain(|charge| charge.id != id);
    }
}
