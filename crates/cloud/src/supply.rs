//! The supply of a pool: which of its offerings are available.
//!
//! The controller knows which types, zones and capacity types a pool may launch. The provider knows which of them are
//! unavailable, why, and until when. Together they show whether a pool has a shortage, and whether it uses a less
//! preferred capacity type.

use std::{collections::BTreeMap, time::Duration};

use croft_scheduler::{CapacityType, InstanceType};

use crate::error::{Fault, OfferingKey};

/// An unavailable offering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The offering.
    pub offering: OfferingKey,
    /// The last refusal.
    pub fault: Fault,
    /// Refusals in a row.
    pub strikes: u32,
    /// Time until one launch may retry it; zero while one does.
    pub next_try: Duration,
}

/// The supply of one capacity type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// Number of offerings.
    pub offerings: usize,
    /// Number of unavailable ones.
    pub short: usize,
    /// Time until the first of those is retried, if known.
    pub next_try: Option<Duration>,
    /// The most frequent refusal.
    pub fault: Option<Fault>,
}

impl Supply {
    /// True if no offering is available.
    #[must_use]
    pub fn is_dry(&self) -> bool {
        self.short == self.offerings
    }
}

/// The supply of `types` by capacity type. `types` are those that a pool may launch, with only the offerings that it
/// may use.
#[must_use]
pub fn survey<'a>(
    types: impl IntoIterator<Item = &'a InstanceType>,
    shortages: &[Shortage],
) -> BTreeMap<CapacityType, Supply> {
    let known: BTreeMap<&OfferingKey, &Shortage> = shortages.iter().map(|s| (&s.offering, s)).collect();
    let mut supplies: BTreeMap<CapacityType, Supply> = BTreeMap::new();
    let mut votes: BTreeMap<(CapacityType, &str), (usize, &Fault)> = BTreeMap::new();
    for instance_type in types {
        for offering in &instance_type.offerings {
            let supply = supplies.entry(offering.capacity_type).or_default();
            supply.offerings += 1;
            let key = OfferingKey {
                instance_type: instance_type.name.clone(),
                zone: offering.zone.clone(),
                capacity_type: offering.capacity_type,
            };
            let shortage = known.get(&key);
            if shortage.is_none() && offering.available {
                continue;
            }
            supply.short += 1;
            if let Some(shortage) = shortage {
                let sooner = supply.next_try.is_none_or(|known| shortage.next_try < known);
                if sooner {
                    supply.next_try = Some(shortage.next_try);
                }
                votes
                    .entry((offering.capacity_type, &shortage.fault.code))
                    .or_insert((0, &shortage.fault))
                    .0 += 1;
            }
        }
    }
    let mut most: BTreeMap<CapacityType, usize> = BTreeMap::new();
    for ((capacity_type, _), (count, fault)) in votes {
        if most.get(&capacity_type).is_none_or(|known| count > *known) {
            most.insert(capacity_type, count);
            if let Some(supply) = supplies.get_mut(&capacity_type) {
                supply.fault = Some(fault.clone());
            }
        }
    }
    supplies
}

/// The supply of a pool over its capacity types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every offering is available.
    Plenty,
    /// Some offerings are unavailable; every capacity type has available ones.
    Partly,
    /// A preferred capacity type has no available offering; another has.
    FallsBack,
    /// No offering is available.
    Dry,
}

impl Verdict {
    /// The supply of a survey.
    #[must_use]
    pub fn of(supplies: &BTreeMap<CapacityType, Supply>) -> Self {
        let dry = supplies.values().filter(|s| s.is_dry()).count();
        match dry {
            0 if supplies.values().all(|s| s.short == 0) && !supplies.is_empty() => Self::Plenty,
            _ if dry == supplies.len() => Self::Dry,
            0 => Self::Partly,
            _ => Self::FallsBack,
        }
    }

    /// The condition's reason.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plenty => "Available",
            Self::Partly => "PartlyShort",
            Self::FallsBack => "FallingBack",
            Self::Dry => "NoCapacity",
        }
    }
}

/// The survey as a message for a condition, with the refusal's code and remedy.
#[must_use]
pub fn describe(supplies: &BTreeMap<CapacityType, Supply>) -> String {
    let verdict = Verdict::of(supplies);
    if verdict == Verdict::Plenty {
        let all: usize = supplies.values().map(|s| s.offerings).sum();
        return format!("none of {all} offerings is set aside");
    }
    if supplies.is_empty() {
        return "no offering fits the pool's requirements".to_owned();
    }
    let short: Vec<String> = supplies
        .iter()
        .filter(|(_, s)| s.short > 0)
        .map(|(capacity_type, s)| {
            let next = match s.next_try {
                Some(Duration::ZERO) => ", one is being tried".to_owned(),
                Some(next) => format!(", next try in {} s", next.as_secs().max(1)),
                None => String::new(),
            };
            format!("{capacity_type}: {} of {} offerings set aside{next}", s.short, s.offerings)
        })
        .collect();
    let left: Vec<&str> = supplies
        .iter()
        .filter(|(_, s)| !s.is_dry())
        .map(|(capacity_type, _)| capacity_type.as_str())
        .collect();
    let mut text = short.join("; ");
    if verdict == Verdict::FallsBack {
        text.push_str("; launched now: ");
        text.push_str(&left.join(", "));
    }
    if let Some(fault) = supplies.values().filter(|s| s.short > 0).find_map(|s| s.fault.as_ref()) {
        text.push_str("; ");
        text.push_str(&fault.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use croft_scheduler::{CapacityType::*, Offering};

    use super::*;
    use crate::error::FaultClass;

    fn kind(offerings: &[(&str, CapacityType)]) -> InstanceType {
        let offerings = offerings
            .iter()
            .map(|(zone, capacity_type)| Offering {
                zone: (*zone).to_owned(),
                capacity_type: *capacity_type,
                price: None,
                available: true,
                estimated: false,
                available_count: None,
            })
            .collect();
        InstanceType { name: "m5.large".to_owned(), offerings, ..InstanceType::default() }
    }

    fn short(zone: &str, capacity_type: CapacityType, code: &str, next_try: u64) -> Shortage {
        Shortage {
            offering: OfferingKey {
                instance_type: "m5.large".to_owned(),
                zone: zone.to_owned(),
                capacity_type,
            },
            fault: Fault {
                action: "CreateFleet",
                code: code.to_owned(),
                class: FaultClass::NoCapacity,
                message: String::new(),
                meaning: "none is free",
                remedy: "Wait",
            },
            strikes: 1,
            next_try: Duration::from_secs(next_try),
        }
    }

    #[test]
    fn survey_names_shortage_and_substitute() {
        let types = [kind(&[("a", Spot), ("b", Spot), ("a", OnDemand)])];
        let plenty = survey(&types, &[]);
        assert_eq!(Verdict::of(&plenty), Verdict::Plenty);
        assert_eq!(describe(&plenty), "none of 3 offerings is set aside");

        let partly = survey(&types, &[short("a", Spot, "UnfulfillableCapacity", 30)]);
        assert_eq!(Verdict::of(&partly), Verdict::Partly);
        assert_eq!(partly[&Spot].short, 1);
        assert_eq!(
            describe(&partly),
            "spot: 1 of 2 offerings set aside, next try in 30 s; CreateFleet answered UnfulfillableCapacity: none is free. Wait"
        );

        let spot =
            [short("a", Spot, "UnfulfillableCapacity", 30), short("b", Spot, "UnfulfillableCapacity", 0)];
        let fallen = survey(&types, &spot);
        assert_eq!(Verdict::of(&fallen), Verdict::FallsBack);
        assert_eq!(
            describe(&fallen),
            "spot: 2 of 2 offerings set aside, one is being tried; launched now: on-demand; CreateFleet answered UnfulfillableCapacity: none is free. Wait"
        );

        let mut all = spot.to_vec();
        all.push(short("a", OnDemand, "InsufficientInstanceCapacity", 45));
        let dry = survey(&types, &all);
        assert_eq!(Verdict::of(&dry), Verdict::Dry);
        assert!(dry.values().all(Supply::is_dry));
        assert_eq!(Verdict::of(&survey(&[], &all)), Verdict::Dry);
    }

    #[test]
    fn unavailable_offering_counts_without_a_refusal() {
        let mut types = [kind(&[("a", Reserved), ("a", OnDemand)])];
        types[0].offerings[0].available = false;
        let supplies = survey(&types, &[]);
        assert_eq!(supplies[&Reserved], Supply { offerings: 1, short: 1, next_try: None, fault: None });
        assert_eq!(Verdict::of(&supplies), Verdict::FallsBack);
    }

    #[test]
    fn most_frequent_refusal_is_named() {
        let types = [kind(&[("a", Spot), ("b", Spot), ("c", Spot)])];
        let shortages = [
            short("a", Spot, "A", 10),
            short("b", Spot, "B", 20),
            short("c", Spot, "B", 5),
            short("d", Spot, "A", 1),
        ];
        let supplies = survey(&types, &shortages);
        assert_eq!(supplies[&Spot].fault.as_ref().unwrap().code, "B");
        assert_eq!(supplies[&Spot].next_try, Some(Duration::from_secs(5)));
    }
}
