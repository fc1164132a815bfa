//! Amounts of resources by name.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::{Deserialize, Serialize};

use crate::model::quantity::{Quantity, QuantityError};

/// The resource of processors, counted in thousandths.
pub const CPU: &str = "cpu";
/// The resource of memory, in bytes.
pub const MEMORY: &str = "memory";
/// The resource of places for pods.
pub const PODS: &str = "pods";
/// The resource of local disk, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Beginning of the names of huge pages, which the kubelet takes off the memory.
pub const HUGE_PAGES: &str = "hugepages-";

/// True for devices and huge pages: a node has none until a plugin or its own settings give them.
#[must_use]
pub fn is_given_later(name: &str) -> bool {
    name.contains('/') || name.starts_with(HUGE_PAGES)
}

/// Amounts by resource name, each in the unit that kube-scheduler counts in: thousandths for `cpu`,
/// whole units for everything else, fractions rounded up. A name that is absent counts as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Quantity>", into = "BTreeMap<String, Quantity>")]
pub struct Resources(BTreeMap<Box<str>, i64>);

impl Resources {
    /// Nothing of anything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads what Kubernetes objects hold.
    ///
    /// # Errors
    /// The first value that is no quantity, with its resource's name.
    pub fn from_api(map: &BTreeMap<String, ApiQuantity>) -> Result<Self, (String, QuantityError)> {
        let mut result = Self::new();
        for (name, text) in map {
            let quantity = text.0.parse::<Quantity>().map_err(|error| (name.clone(), error))?;
            result.set_quantity(name, quantity);
        }
        Ok(result)
    }

    /// The amount of `name`, in native units.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Sets `name` to `amount` native units.
    pub fn set(&mut self, name: &str, amount: i64) {
        self.0.insert(name.into(), amount);
    }

    /// Sets `name` to `quantity`, rounded up to native units.
    pub fn set_quantity(&mut self, name: &str, quantity: Quantity) {
        self.set(name, native(name, quantity));
    }

    /// The amount of `name` as a quantity.
    #[must_use]
    pub fn quantity(&self, name: &str) -> Quantity {
        quantity(name, self.get(name))
    }

    /// Names and amounts in native units, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// True if nothing was set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let sum = self.get(name).saturating_add(amount);
            self.set(name, sum);
        }
    }

    /// Takes `other` away, saturating; the result may be negative.
    pub fn sub(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let rest = self.get(name).saturating_sub(amount);
            self.set(name, rest);
        }
    }

    /// Raises each amount to at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let most = self.get(name).max(amount);
            self.set(name, most);
        }
    }

    /// The same as a map of printable quantities.
    #[must_use]
    pub fn to_quantities(&self) -> BTreeMap<String, Quantity> {
        self.iter().map(|(name, amount)| (name.to_owned(), quantity(name, amount))).collect()
    }
}

/// `quantity` of the resource `name` in native units, rounded up.
#[must_use]
pub fn native(name: &str, quantity: Quantity) -> i64 {
    if name == CPU { quantity.millis() } else { quantity.units() }
}

/// `amount` native units of the resource `name`.
#[must_use]
pub fn quantity(name: &str, amount: i64) -> Quantity {
    if name == CPU { Quantity::from_millis(amount) } else { Quantity::from_units(amount) }
}

/// Which way a readable amount is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// An amount that exists: rounded down.
    Down,
    /// An amount that is requested: rounded up. Of two amounts, the smaller rounded down and the larger up stay apart.
    Up,
}

/// `amount` native units of the resource `name` as people say it: `7.9 cores`, `250m`, `30.1Gi`; two digits behind
/// the point at most for bytes, three for cores.
#[must_use]
pub fn readable(name: &str, amount: i64, round: Round) -> String {
    if name == CPU {
        if amount.unsigned_abs() < 1_000 {
            return quantity(name, amount).to_string();
        }
        let noun = if amount == 1_000 { "core" } else { "cores" };
        return format!("{} {noun}", decimal(i128::from(amount), 3));
    }
    if name != MEMORY && name != EPHEMERAL_STORAGE && !name.starts_with(HUGE_PAGES) {
        return quantity(name, amount).to_string();
    }
    let units = [(60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let Some((shift, suffix)) = units.into_iter().find(|(shift, _)| amount >> shift > 0) else {
        return amount.to_string();
    };
    let hundredths = i128::from(amount) * 100;
    let up = if round == Round::Up { (1i128 << shift) - 1 } else { 0 };
    format!("{}{suffix}", decimal((hundredths + up) >> shift, 2))
}

/// `value` with its last `places` digits behind the point, less the zeroes at the end.
fn decimal(value: i128, places: u32) -> String {
    let one = 10i128.pow(places);
    let width = usize::try_from(places).unwrap_or(0);
    let text = format!("{}.{:0width$}", value / one, (value % one).abs());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl From<BTreeMap<String, Quantity>> for Resources {
    fn from(map: BTreeMap<String, Quantity>) -> Self {
        let mut result = Self::new();
        for (name, value) in map {
            result.set_quantity(&name, value);
        }
        result
    }
}

impl From<Resources> for BTreeMap<String, Quantity> {
    fn from(resources: Resources) -> Self {
        resources.to_quantities()
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{name} {}", quantity(name, amount))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_as_people_say_them() {
        const GI: i64 = 1 << 30;
        for (name, amount, round, text) in [
            (CPU, 893_690, Round::Down, "893.69 cores"),
            (CPU, 10_000_000, Round::Up, "10000 cores"),
            (CPU, 1_000, Round::Up, "1 core"),
            (CPU, 250, Round::Up, "250m"),
            (MEMORY, 64 * GI, Round::Up, "64Gi"),
            (MEMORY, 32_325_000_000, Round::Down, "30.1Gi"),
            (MEMORY, 32_325_000_000, Round::Up, "30.11Gi"),
            (MEMORY, 64 * GI - 1, Round::Down, "63.99Gi"),
            (MEMORY, i64::MAX, Round::Up, "8Ei"),
            (MEMORY, 1_000, Round::Down, "1000"),
            ("hugepages-2Mi", 3 << 19, Round::Down, "1.5Mi"),
            ("nvidia.com/gpu", 8, Round::Down, "8"),
            (PODS, 110, Round::Down, "110"),
        ] {
            assert_eq!(readable(name, amount, round), text, "{name} {amount}");
        }
    }

    #[test]
    fn what_is_there_and_what_is_asked_never_read_alike() {
        for there in (1i64 << 30)..(1i64 << 30) + 2_000 {
            assert_ne!(readable(MEMORY, there, Round::Down), readable(MEMORY, there + 1, Round::Up));
        }
    }
}
