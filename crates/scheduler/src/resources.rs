//! Amounts of resources by name.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::{Deserialize, Serialize};

use crate::quantity::{Quantity, QuantityError};

/// The resource of processors, counted in thousandths.
pub const CPU: &str = "cpu";
/// The resource of memory, in bytes.
pub const MEMORY: &str = "memory";
/// The resource of places for pods.
pub const PODS: &str = "pods";
/// The resource of local disk, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

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
