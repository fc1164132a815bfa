//! The instance types that a NodeClaim was requested with, and their prices today.

use croft_scheduler::{CapacityType, InstanceType};
use serde::Serialize;

/// An instance type and its price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypePrice {
    /// The instance type.
    pub instance_type: String,
    /// Its price today in the node's zone, in millionths of a dollar per hour; none if the catalogue has none.
    pub price: Option<i64>,
    /// True if the price is an estimate, not published.
    pub estimated: bool,
    /// True for the type that was launched.
    pub chosen: bool,
}

/// The instance types that a NodeClaim was requested with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchChoice {
    /// The first types of the request, and the one that was launched.
    pub types: Vec<TypePrice>,
    /// The number of other types.
    pub others: usize,
    /// The zones of the request, the first ones if they are many.
    pub zones: Vec<String>,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: String,
    /// The NodeClaims that it replaces.
    pub replaces: Option<String>,
}

/// Reads the message of a NodeClaim's `create` entry, "one of TYPES in ZONES, CAPACITY" as the controller's recorder writes it, for a node
/// of `chosen` type in `zone`; both are empty before its launch. None for another message.
#[must_use]
pub fn launch_choice(message: &str, chosen: &str, zone: &str) -> Option<LaunchChoice> {
    let text = message.strip_prefix("one of ")?;
    let (text, replaces) = match text.split_once(", to replace ") {
        Some((text, replaces)) => (text, Some(replaces.to_owned())),
        None => (text, None),
    };
    let (types, text) = text.split_once(" in ")?;
    let (zones, capacity_type) = text.rsplit_once(", ")?;
    let (mut types, mut others) = names(types);
    if !chosen.is_empty() && !types.iter().any(|one| one == chosen) {
        types.push(chosen.to_owned());
        others = others.saturating_sub(1);
    }
    let catalog = croft_cloud::builtin_catalog();
    let paid_as = CapacityType::parse(capacity_type).unwrap_or_default();
    let price = |name: String| type_price(&catalog, name, zone, paid_as, chosen);
    Some(LaunchChoice {
        types: types.into_iter().map(price).collect(),
        others,
        zones: names(zones).0,
        capacity_type: capacity_type.to_owned(),
        replaces,
    })
}

fn type_price(
    catalog: &[InstanceType],
    name: String,
    zone: &str,
    paid_as: CapacityType,
    chosen: &str,
) -> TypePrice {
    let of_type = catalog.iter().filter(|one| one.name == name).flat_map(|one| &one.offerings);
    let offering = of_type.into_iter().find(|one| one.zone == zone && one.capacity_type == paid_as);
    TypePrice {
        price: offering.and_then(|one| one.price).map(croft_scheduler::Price::micros),
        estimated: offering.is_some_and(|one| one.estimated),
        chosen: name == chosen,
        instance_type: name,
    }
}

/// The names of "A, B and 3 more", and the number of others.
fn names(text: &str) -> (Vec<String>, usize) {
    let counted = text.rsplit_once(" and ").and_then(|(text, rest)| {
        let others: usize = rest.strip_suffix(" more")?.parse().ok()?;
        Some((text, others))
    });
    let (text, others) = counted.unwrap_or((text, 0));
    (text.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect(), others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_create_entrys_message_gives_types_with_prices_and_the_chosen_one() {
        let message = "one of m5.large, m5.xlarge, c5.large, c5.xlarge and 3 more in us-east-1a, us-east-1b, on-demand, to replace old-1";
        let choice = launch_choice(message, "m5.xlarge", "us-east-1b").unwrap();
        assert_eq!((choice.types.len(), choice.others), (4, 3));
        assert_eq!(choice.zones, ["us-east-1a", "us-east-1b"]);
        assert_eq!((choice.capacity_type.as_str(), choice.replaces.as_deref()), ("on-demand", Some("old-1")));
        assert_eq!((choice.types[0].price, choice.types[1].price), (Some(96_000), Some(192_000)));
        assert!(choice.types[1].chosen && !choice.types[0].chosen);

        let unnamed = launch_choice(message, "r5.large", "us-east-1b").unwrap();
        assert_eq!((unnamed.types.len(), unnamed.others), (5, 2), "the chosen type is one of the others");
        let coming = launch_choice("one of m5.large in us-east-1a, spot", "", "").unwrap();
        assert_eq!((coming.types[0].price, coming.types[0].chosen), (None, false), "of no zone yet");
        assert_eq!(launch_choice("attempt 1", "m5.large", "us-east-1a"), None);
    }
}
