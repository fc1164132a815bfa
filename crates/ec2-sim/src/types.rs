//! Instance types, where they are offered, and spot prices.

use croft_cloud::{
    catalog::Entry,
    facts::{Device, Ec2InstanceType},
};

use crate::{
    answer::{Call, Outcome, Refusal},
    describe::{all, iso, page, zone_id},
    params::Filter,
    world::World,
    xml::Xml,
};

impl World {
    pub(crate) fn describe_instance_types(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let names = call.params.list("InstanceType");
        if !names.is_empty() && call.params.get("MaxResults").is_some() {
            return Err(Refusal::new(
                "InvalidParameterCombination",
                "The parameter instanceTypes cannot be used with the parameter maxResults",
            ));
        }
        if let Some(name) = names.iter().find(|name| self.market.entry(name).is_none()) {
            return Err(Refusal::new(
                "InvalidInstanceType",
                format!("The following supplied instance types do not exist: [{name}]"),
            ));
        }
        let filters = call.params.filters();
        let mut found = Vec::new();
        for entry in self.market.entries() {
            if (names.is_empty() || names.contains(&entry.facts.name))
                && all(&filters, |f| matches(entry, f))?
            {
                found.push(entry);
            }
        }
        // EC2 returns at most 100 a page.
        let (found, token) = page(call, found)?;
        let mut xml = Xml::new();
        xml.items("instanceTypeSet", found, write);
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }

    pub(crate) fn describe_offerings(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let by_zone = match call.params.get("LocationType") {
            Some("availability-zone") => true,
            None | Some("region") => false,
            Some(other) => {
                return Err(Refusal::new(
                    "InvalidParameterValue",
                    format!("Location type {other} is not simulated"),
                ));
            }
        };
        let filters = call.params.filters();
        let mut found = Vec::new();
        for entry in self.market.entries() {
            let name = entry.facts.name.as_str();
            let places: Vec<String> = if by_zone {
                entry.zones.chars().map(|letter| format!("{}{letter}", self.settings.region)).collect()
            } else {
                vec![self.settings.region.clone()]
            };
            for place in places {
                let fits = all(&filters, |f| match f.name.as_str() {
                    "instance-type" => Some(f.matches([name])),
                    "location" => Some(f.matches([place.as_str()])),
                    _ => None,
                })?;
                if fits {
                    found.push((name, place));
                }
            }
        }
        let (found, token) = page(call, found)?;
        let kind = if by_zone { "availability-zone" } else { "region" };
        let mut xml = Xml::new();
        xml.items("instanceTypeOfferingSet", found, |xml, (name, place)| {
            xml.leaf("instanceType", name).leaf("locationType", kind).leaf("location", place);
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }

    pub(crate) fn describe_spot_prices(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let names = call.params.list("InstanceType");
        let mut found = Vec::new();
        for entry in self.market.entries().filter(|e| e.facts.spot) {
            let name = entry.facts.name.as_str();
            if !names.is_empty() && !names.iter().any(|n| n == name) {
                continue;
            }
            for letter in entry.zones.chars() {
                let zone = format!("{}{letter}", self.settings.region);
                if call.params.get("AvailabilityZone").is_none_or(|wanted| wanted == zone) {
                    let price = self.market.spot(name, &zone);
                    found.push((name, zone, price));
                }
            }
        }
        let (found, token) = page(call, found)?;
        let at = iso(self.now);
        let mut xml = Xml::new();
        xml.items("spotPriceHistorySet", found, |xml, (name, zone, price)| {
            xml.leaf("instanceType", name)
                .leaf("productDescription", "Linux/UNIX")
                .leaf("spotPrice", price)
                .leaf("timestamp", &at)
                .leaf("availabilityZone", &zone)
                .leaf("availabilityZoneId", zone_id(&zone));
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }
}

fn matches(entry: &Entry, filter: &Filter) -> Option<bool> {
    let f = &entry.facts;
    let classes = [(f.on_demand, "on-demand"), (f.spot, "spot")];
    match filter.name.as_str() {
        "instance-type" => Some(filter.matches([f.name.as_str()])),
        "processor-info.supported-architecture" => Some(filter.matches([f.arch.as_ec2()])),
        "supported-virtualization-type" => Some(filter.matches(["hvm"])),
        "supported-usage-class" => {
            Some(filter.matches(classes.iter().filter_map(|(offered, name)| offered.then_some(*name))))
        }
        "bare-metal" => Some(filter.matches([if f.hypervisor.is_empty() { "true" } else { "false" }])),
        _ => None,
    }
}

fn write(xml: &mut Xml, entry: &Entry) {
    let f = &entry.facts;
    xml.leaf("instanceType", &f.name).leaf("currentGeneration", true);
    let classes = [(f.on_demand, "on-demand"), (f.spot, "spot")];
    xml.items("supportedUsageClasses", classes.iter().filter(|(offered, _)| *offered), |xml, (_, name)| {
        xml.text(name);
    });
    xml.items("supportedVirtualizationTypes", ["hvm"], |xml, name| xml.text(name));
    xml.leaf("bareMetal", f.hypervisor.is_empty());
    if !f.hypervisor.is_empty() {
        xml.leaf("hypervisor", &f.hypervisor);
    }
    xml.node("processorInfo", |xml| {
        xml.items("supportedArchitectures", [f.arch.as_ec2()], |xml, arch| xml.text(arch));
        if f.clock_mhz > 0 {
            xml.leaf("sustainedClockSpeedInGhz", thousandths(f.clock_mhz));
        }
        xml.leaf(
            "manufacturer",
            match f.cpu_manufacturer.as_str() {
                "intel" => "Intel",
                "amd" => "AMD",
                "aws" => "AWS",
                other => other,
            },
        );
    });
    xml.node("vCpuInfo", |xml| {
        xml.leaf("defaultVCpus", f.vcpus);
    });
    xml.node("memoryInfo", |xml| {
        xml.leaf("sizeInMiB", f.memory_mib);
    });
    xml.leaf("instanceStorageSupported", f.nvme_gb > 0);
    if f.nvme_gb > 0 {
        xml.node("instanceStorageInfo", |xml| {
            xml.leaf("totalSizeInGB", f.nvme_gb).leaf("nvmeSupport", "required");
        });
    }
    xml.node("ebsInfo", |xml| {
        xml.leaf("ebsOptimizedSupport", if f.ebs_mbps > 0 { "default" } else { "unsupported" });
        if f.ebs_mbps > 0 {
            xml.node("ebsOptimizedInfo", |xml| {
                xml.leaf("maximumBandwidthInMbps", f.ebs_mbps);
            });
        }
        xml.leaf("maximumEbsAttachments", f.ebs_attachments)
            .leaf("attachmentLimitType", if f.attachments_shared { "shared" } else { "dedicated" });
    });
    write_network(xml, f);
    if let Some(gpu) = &f.gpu {
        xml.node("gpuInfo", |xml| {
            xml.items("gpus", [gpu], device);
        });
    }
    if let Some(accelerator) = &f.accelerator {
        if accelerator.manufacturer == "aws" {
            xml.node("neuronInfo", |xml| {
                xml.items("neuronDevices", [accelerator], device);
            });
        } else {
            xml.node("inferenceAcceleratorInfo", |xml| {
                xml.items("accelerators", [accelerator], device);
            });
        }
    }
}

fn write_network(xml: &mut Xml, f: &Ec2InstanceType) {
    xml.node("networkInfo", |xml| {
        xml.leaf("maximumNetworkInterfaces", f.enis)
            .leaf("maximumNetworkCards", f.network_cards)
            .leaf("defaultNetworkCardIndex", 0)
            .items("networkCards", 0..f.network_cards, |xml, index| {
                // The first card has the remainder.
                let cards = f.network_cards.max(1);
                let share = f.network_mbps / cards + if index == 0 { f.network_mbps % cards } else { 0 };
                xml.leaf("networkCardIndex", index)
                    .leaf("maximumNetworkInterfaces", f.enis)
                    .leaf("baselineBandwidthInGbps", thousandths(share));
            })
            .leaf("ipv4AddressesPerInterface", f.ips_per_eni)
            .leaf("encryptionInTransitSupported", f.encryption_in_transit)
            .leaf("efaSupported", f.efas > 0);
        if f.efas > 0 {
            xml.node("efaInfo", |xml| {
                xml.leaf("maximumEfaInterfaces", f.efas);
            });
        }
    });
}

fn device(xml: &mut Xml, device: &Device) {
    xml.leaf("name", &device.name).leaf("count", device.count);
    // Neuron devices are Amazon's own and name no manufacturer.
    if device.manufacturer != "aws" {
        xml.leaf("manufacturer", &device.manufacturer);
    }
    xml.node("memoryInfo", |xml| {
        xml.leaf("sizeInMiB", device.memory_mib);
    });
}

fn thousandths(n: u32) -> String {
    format!("{}.{:03}", n / 1000, n % 1000)
}
