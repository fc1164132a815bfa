//! A catalogue from a file instead of the built-in one: in the format of `croft simulate --catalog` (JSON), or in that
//! of the built-in one (one type a line).
//!
//! The JSON format describes nodes, not what EC2 says of a type. Types of the built-in catalogue keep its description;
//! for others it is derived so that nodes come out the same.

use std::collections::BTreeMap;

use croft_cloud::{
    catalog::{Entry, builtin_entries, parse},
    facts::{Arch, Device, Ec2InstanceType, LABEL_PREFIX},
};
use croft_scheduler::{CapacityType, InstanceType, Price};

use crate::capacity_rule::CapacityRule;

/// The instance types of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Types with their zones and on-demand prices.
    pub entries: Vec<Entry>,
    /// Spot prices by type and zone; others are generated from the seed.
    pub spot: BTreeMap<(String, String), Price>,
    /// Offerings without capacity.
    pub missing: Vec<CapacityRule>,
}

/// Why a catalogue can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It isn't a JSON catalogue.
    #[error("failed to read the catalogue: {0}")]
    Json(#[from] serde_json::Error),
    /// It isn't a catalogue with one type a line.
    #[error(transparent)]
    Lines(#[from] croft_cloud::catalog::CatalogError),
    /// A type that isn't offered in the simulated region.
    #[error("failed to read the catalogue: type {name}: {problem}")]
    Type {
        /// The type.
        name: String,
        /// The error.
        problem: String,
    },
    /// It has no types.
    #[error("failed to read the catalogue: it has no instance types")]
    Empty,
}

/// Memory of a node in thousandths of the memory that EC2 reports for its type.
const VISIBLE_PERMILLE: i64 = 925;

/// Reads a catalogue for `region`.
///
/// # Errors
/// If it can't be read, or has an offering outside the region.
pub fn read(text: &str, region: &str) -> Result<Catalogue, CatalogueError> {
    let catalogue = if text.trim_start().starts_with('{') {
        let file: croft_scheduler::Catalog = serde_json::from_str(text)?;
        let mut catalogue = Catalogue::default();
        for kind in &file.instance_types {
            add(&mut catalogue, kind, region)?;
        }
        catalogue
    } else {
        Catalogue { entries: parse(text)?, ..Catalogue::default() }
    };
    if catalogue.entries.is_empty() {
        return Err(CatalogueError::Empty);
    }
    Ok(catalogue)
}

fn add(catalogue: &mut Catalogue, kind: &InstanceType, region: &str) -> Result<(), CatalogueError> {
    let wrong = |problem: String| CatalogueError::Type { name: kind.name.clone(), problem };
    let known = builtin_entries().iter().find(|e| e.facts.name == kind.name).map(|e| e.facts.clone());
    let mut facts = match known {
        Some(facts) => facts,
        None => derive(kind).ok_or_else(|| wrong(format!("{} is no architecture", kind.arch)))?,
    };
    (facts.on_demand, facts.spot) = (false, false);
    let mut entry = Entry { facts, zones: String::new(), price: None };
    for offering in &kind.offerings {
        let letter = offering
            .zone
            .strip_prefix(region)
            .filter(|rest| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_lowercase()))
            .ok_or_else(|| wrong(format!("zone {} is not one of {region}", offering.zone)))?;
        if !entry.zones.contains(letter) {
            entry.zones.push_str(letter);
        }
        match offering.capacity_type {
            CapacityType::OnDemand => {
                entry.facts.on_demand = true;
                entry.price = entry.price.or(offering.price);
            }
            CapacityType::Spot => {
                entry.facts.spot = true;
                if let Some(price) = offering.price {
                    catalogue.spot.insert((kind.name.clone(), offering.zone.clone()), price);
                }
            }
            // The control request `reserve` creates reserved capacity.
            CapacityType::Reserved => continue,
        }
        if !offering.available {
            catalogue.missing.push(CapacityRule {
                instance_type: kind.name.clone(),
                zone: offering.zone.clone(),
                capacity_type: offering.capacity_type.as_str().to_owned(),
                count: Some(0),
            });
        }
    }
    catalogue.entries.push(entry);
    Ok(())
}

fn derive(kind: &InstanceType) -> Option<Ec2InstanceType> {
    let label = |name: &str| kind.labels.get(&format!("{LABEL_PREFIX}{name}")).map(String::as_str);
    let number = |name: &str| label(name).and_then(|text| text.parse().ok());
    let amount = |name: &str| u64::try_from(kind.capacity.get(name)).unwrap_or(0);
    let count = |name: &str| u32::try_from(amount(name)).unwrap_or(u32::MAX);
    let shown = (kind.capacity.get("memory") / VISIBLE_PERMILLE * 1000) >> 20;
    let device = |resource: &str, maker: &str, prefix: &str| {
        let count = count(resource);
        (count > 0).then(|| Device {
            count,
            manufacturer: maker.to_owned(),
            name: label(&format!("{prefix}-name")).unwrap_or(maker).to_owned(),
            memory_mib: 0,
        })
    };
    Some(Ec2InstanceType {
        name: kind.name.clone(),
        arch: Arch::parse(&kind.arch)?,
        vcpus: u32::try_from(kind.capacity.get("cpu") / 1000).unwrap_or(0),
        memory_mib: number("memory").unwrap_or(u64::try_from(shown).unwrap_or(0)).max(1),
        hypervisor: label("hypervisor").unwrap_or("nitro").to_owned(),
        cpu_manufacturer: label("cpu-manufacturer").unwrap_or_default().to_owned(),
        network_cards: 1,
        // One interface with an address for itself, and two pods on the host's network: the number of pods is the same.
        enis: 1,
        ips_per_eni: count("pods").saturating_sub(1),
        efas: count(croft_cloud::facts::EFA),
        gpu: device("nvidia.com/gpu", "nvidia", "gpu").or_else(|| device("amd.com/gpu", "amd", "gpu")),
        accelerator: device("aws.amazon.com/neuron", "aws", "accelerator"),
        ..Ec2InstanceType::default()
    })
}

#[cfg(test)]
mod tests {
    use croft_cloud::facts::Setup;

    use super::*;

    const FILE: &str = r#"{"instanceTypes": [
        {"name": "m5.large", "arch": "amd64", "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
         "offerings": [{"zone": "us-east-1a", "capacityType": "on-demand", "price": 0.1},
                       {"zone": "us-east-1b", "capacityType": "spot", "price": 0.05, "available": false}]},
        {"name": "x.tiny", "arch": "arm64", "capacity": {"cpu": "3", "memory": "1850Mi", "pods": "17", "nvidia.com/gpu": "2"},
         "offerings": [{"zone": "us-east-1c", "capacityType": "spot", "price": 0.01}]}]}"#;

    #[test]
    fn known_types_keep_their_facts_and_others_are_derived() {
        let catalogue = read(FILE, "us-east-1").unwrap();
        let m5 = &catalogue.entries[0];
        assert_eq!(
            (m5.facts.enis, m5.zones.as_str(), m5.price.map(|p| p.micros())),
            (3, "ab", Some(100_000))
        );
        assert_eq!(catalogue.missing[0].zone, "us-east-1b");
        let tiny = &catalogue.entries[1];
        assert!(!tiny.facts.on_demand && tiny.facts.spot);
        let capacity = tiny.facts.capacity(&Setup::default());
        assert_eq!(
            (capacity.get("cpu"), capacity.get("pods"), capacity.get("nvidia.com/gpu")),
            (3000, 17, 2)
        );
        assert_eq!(catalogue.spot[&("x.tiny".to_owned(), "us-east-1c".to_owned())].micros(), 10_000);
    }

    #[test]
    fn lines_are_parsed_and_errors_are_named() {
        let line = croft_cloud::catalog::format_line(&builtin_entries()[0]);
        assert_eq!(read(&line, "us-east-1").unwrap().entries, [builtin_entries()[0].clone()]);
        let refused = |text: &str, region: &str| read(text, region).unwrap_err().to_string();
        assert_eq!(
            refused(FILE, "eu-west-1"),
            "failed to read the catalogue: type m5.large: zone us-east-1a is not one of eu-west-1"
        );
        assert_eq!(
            refused("# nothing", "us-east-1"),
            "failed to read the catalogue: it has no instance types"
        );
        assert!(refused("{", "us-east-1").starts_with("failed to read the catalogue: EOF"));
    }
}
