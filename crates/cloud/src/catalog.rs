//! The built-in catalogue: every instance type of us-east-1 with zones and prices, as of a date.
//!
//! `data/catalog-us-east-1.txt` is written by `cargo run -p croft-xtask -- catalog` and read by [`parse`]. One line per
//! type, fields separated by blanks, in the order of [`COLUMNS`]; `-` is no value. Lines with `#` describe the file.
//! The format is small and parses in milliseconds.

use std::{
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use croft_scheduler::{CapacityType, InstanceType, Offering, Price};

use crate::facts::{Arch, Device, Ec2InstanceType, Setup};

/// The columns of the file, in order.
pub const COLUMNS: &str = "name arch vcpus memoryMiB hypervisor cpuMaker clockMHz ebsMbps netMbps enis ipsPerEni \
                           cards efas nvmeGB attach flags gpu accelerator zones microDollars";

/// Region of the built-in catalogue.
pub const REGION: &str = "us-east-1";

/// The estimate of an unknown spot price, in thousandths of the on-demand price. Spot costs 30 to 60 % of on-demand
/// over the general-purpose families; the upper bound keeps budgets valid.
pub const SPOT_ESTIMATE_PERMILLE: i64 = 450;

static TEXT: &str = include_str!("../data/catalog-us-east-1.txt");

/// One type of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// EC2's description.
    pub facts: Ec2InstanceType,
    /// Last letters of its zones.
    pub zones: String,
    /// On-demand price, if known.
    pub price: Option<Price>,
}

impl Entry {
    /// Offerings in `region` at the catalogue's prices.
    #[must_use]
    pub fn offerings(&self, region: &str) -> Vec<Offering> {
        let mut offerings = Vec::with_capacity(self.zones.len() * 2);
        for letter in self.zones.chars() {
            let zone = format!("{region}{letter}");
            let mut offer = |capacity_type, price, estimated| {
                offerings.push(Offering {
                    zone: zone.clone(),
                    capacity_type,
                    price,
                    available: true,
                    estimated,
                    available_count: None,
                });
            };
            if self.facts.on_demand {
                offer(CapacityType::OnDemand, self.price, false);
            }
            if self.facts.spot {
                offer(CapacityType::Spot, self.price.map(estimate_spot), self.price.is_some());
            }
        }
        offerings
    }
}

/// The estimated spot price for an on-demand price.
#[must_use]
pub fn estimate_spot(on_demand: Price) -> Price {
    Price::from_micros(on_demand.micros().saturating_mul(SPOT_ESTIMATE_PERMILLE) / 1000)
}

/// Why a catalogue can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the catalogue: line {line}: {problem}")]
pub struct CatalogError {
    /// Line number, from 1.
    pub line: usize,
    /// The error.
    pub problem: String,
}

/// The built-in catalogue's types as EC2 describes them.
#[must_use]
pub fn builtin_entries() -> &'static [Entry] {
    static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        // A test reads the embedded file, so an unreadable one isn't released.
        parse(TEXT).unwrap_or_default()
    });
    &ENTRIES
}

/// The built-in catalogue, for instances set up by the EKS images. Parsed on first use.
#[must_use]
pub fn builtin_catalog() -> Arc<[InstanceType]> {
    static CATALOG: LazyLock<Arc<[InstanceType]>> = LazyLock::new(|| {
        let setup = Setup::default();
        builtin_entries().iter().map(|e| e.facts.instance_type(&setup, e.offerings(REGION))).collect()
    });
    Arc::clone(&CATALOG)
}

/// The comment lines of the built-in catalogue: its date and sources.
pub fn builtin_provenance() -> impl Iterator<Item = &'static str> {
    TEXT.lines().map_while(|line| line.strip_prefix("# "))
}

/// Reads a catalogue in the format of the built-in one.
///
/// # Errors
/// The first line that can't be read.
pub fn parse(text: &str) -> Result<Vec<Entry>, CatalogError> {
    let mut entries = Vec::with_capacity(1400);
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = parse_line(line).map_err(|problem| CatalogError { line: index + 1, problem })?;
        entries.push(entry);
    }
    Ok(entries)
}

fn parse_line(line: &str) -> Result<Entry, String> {
    let mut fields = line.split(' ');
    let mut names = COLUMNS.split_whitespace();
    let mut next = || {
        let name = names.next().unwrap_or("end");
        fields.next().map(|value| (name, value)).ok_or_else(|| format!("{name} is missing"))
    };
    let name = next()?.1.to_owned();
    let arch = next()?.1;
    let arch = Arch::parse(arch).ok_or_else(|| format!("{arch} is no architecture"))?;
    let mut facts = Ec2InstanceType { name, arch, ..Ec2InstanceType::default() };
    facts.vcpus = number(next()?)?;
    facts.memory_mib = number(next()?)?;
    facts.hypervisor = word(next()?.1);
    facts.cpu_manufacturer = word(next()?.1);
    facts.clock_mhz = number(next()?)?;
    facts.ebs_mbps = number(next()?)?;
    facts.network_mbps = number(next()?)?;
    facts.enis = number(next()?)?;
    facts.ips_per_eni = number(next()?)?;
    facts.network_cards = number(next()?)?;
    facts.efas = number(next()?)?;
    facts.nvme_gb = number(next()?)?;
    facts.ebs_attachments = number(next()?)?;
    for flag in next()?.1.chars() {
        match flag {
            'h' => facts.attachments_shared = true,
            'e' => facts.encryption_in_transit = true,
            'o' => facts.on_demand = true,
            's' => facts.spot = true,
            '-' => {}
            other => return Err(format!("{other} is no flag")),
        }
    }
    facts.gpu = device(next()?)?;
    facts.accelerator = device(next()?)?;
    let zones = word(next()?.1);
    let (name, price) = next()?;
    let price = if price == "-" { None } else { Some(Price::from_micros(number((name, price))?)) };
    Ok(Entry { facts, zones, price })
}

fn word(value: &str) -> String {
    if value == "-" { String::new() } else { value.to_owned() }
}

fn number<N: std::str::FromStr>((name, value): (&str, &str)) -> Result<N, String> {
    value.parse().map_err(|_| format!("{name} is {value}, which is no such number"))
}

fn device((column, value): (&str, &str)) -> Result<Option<Device>, String> {
    if value == "-" {
        return Ok(None);
    }
    let mut parts = value.splitn(4, ':');
    let mut part = || parts.next().ok_or_else(|| format!("{column} is {value}, not count:maker:name:MiB"));
    let count = number((column, part()?))?;
    let manufacturer = part()?.to_owned();
    let name = part()?.to_owned();
    let memory_mib = number((column, part()?))?;
    Ok(Some(Device { count, manufacturer, name, memory_mib }))
}

/// Formats one line.
#[must_use]
pub fn format_line(entry: &Entry) -> String {
    let f = &entry.facts;
    let dash = |s: &str| if s.is_empty() { "-".to_owned() } else { s.to_owned() };
    let show = |d: &Option<Device>| {
        d.as_ref().map_or_else(
            || "-".to_owned(),
            |d| format!("{}:{}:{}:{}", d.count, d.manufacturer, d.name, d.memory_mib),
        )
    };
    let flags: String =
        [(f.attachments_shared, 'h'), (f.encryption_in_transit, 'e'), (f.on_demand, 'o'), (f.spot, 's')]
            .into_iter()
            .filter_map(|(set, flag)| set.then_some(flag))
            .collect();
    let mut line = String::with_capacity(120);
    // Writing to a String can't fail.
    let _ = write!(
        line,
        "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
        f.name,
        f.arch.as_str(),
        f.vcpus,
        f.memory_mib,
        dash(&f.hypervisor),
        dash(&f.cpu_manufacturer),
        f.clock_mhz,
        f.ebs_mbps,
        f.network_mbps,
        f.enis,
        f.ips_per_eni,
        f.network_cards,
        f.efas,
        f.nvme_gb,
        f.ebs_attachments,
        dash(&flags),
        show(&f.gpu),
        show(&f.accelerator),
        dash(&entry.zones),
        entry.price.map_or_else(|| "-".to_owned(), |p| p.micros().to_string()),
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> InstanceType {
        builtin_catalog().iter().find(|t| t.name == name).unwrap().clone()
    }

    #[test]
    fn built_in_file_round_trips() {
        let entries = parse(TEXT).unwrap();
        assert!(entries.len() > 1300, "{}", entries.len());
        let written: Vec<String> = entries.iter().map(format_line).collect();
        let lines: Vec<&str> = TEXT.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(written, lines);
        assert!(builtin_provenance().any(|line| line.contains("2026")), "says of when it is");
    }

    #[test]
    fn catalogue_has_known_types_with_prices() {
        let m5 = find("m5.large");
        assert_eq!(m5.capacity.get("memory"), 7577 << 20);
        assert_eq!(m5.labels["karpenter.k8s.aws/instance-network-bandwidth"], "750");
        let od: Vec<_> = m5.offerings.iter().filter(|o| o.capacity_type == CapacityType::OnDemand).collect();
        assert!(od.iter().all(|o| o.price == Some(Price::from_micros(96_000)) && !o.estimated));
        assert_eq!(od.iter().map(|o| o.zone.as_str()).collect::<Vec<_>>()[0], "us-east-1a");
        let spot = m5.offerings.iter().find(|o| o.capacity_type == CapacityType::Spot).unwrap();
        assert!(spot.estimated && spot.price == Some(Price::from_micros(43_200)));
        let p4d = find("p4d.24xlarge");
        assert_eq!(p4d.capacity.get("nvidia.com/gpu"), 8);
        assert_eq!(p4d.offerings[0].price, Some(Price::from_micros(21_957_642)));
        assert_eq!(find("m6g.large").arch, "arm64");
        assert_eq!(find("m5.metal").offerings[0].price, Some(Price::from_micros(4_608_000)));
        assert_eq!(find("t3.nano").offerings[0].price, Some(Price::from_micros(5_200)));
    }

    /// The price list that the catalogue is made from lacks these families; every other type has a price.
    #[test]
    fn types_without_a_price_are_those_of_three_families() {
        let unpriced = builtin_entries().iter().filter(|entry| entry.price.is_none());
        let families: std::collections::BTreeSet<&str> = unpriced.map(|entry| entry.facts.family()).collect();
        assert_eq!(families.into_iter().collect::<Vec<_>>(), ["r9g", "r9gd", "t8i"]);
        let mut devices =
            builtin_entries().iter().filter(|e| e.facts.gpu.is_some() || e.facts.accelerator.is_some());
        assert!(devices.clone().count() > 70 && devices.all(|entry| entry.price.is_some()));
    }

    #[test]
    fn invalid_line_is_named() {
        let line = "m5.large amd64 two 8192";
        assert_eq!(
            parse(&format!("# head\n{line}")).unwrap_err().to_string(),
            "failed to read the catalogue: line 2: vcpus is two, which is no such number"
        );
        assert_eq!(
            parse("m5.large amd64 2").unwrap_err().to_string(),
            "failed to read the catalogue: line 1: memoryMiB is missing"
        );
    }
}
