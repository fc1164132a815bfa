//! Instance types and where they are offered, as EC2 describes them.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{
    AttachmentLimitType, EphemeralNvmeSupport, Filter, InstanceTypeInfo, LocationType, UsageClassType,
};
use croft_cloud::{
    Fault,
    facts::{Arch, Device, Ec2InstanceType},
};

use crate::{connect::Clients, pace::Paces};

/// Types by name, and the zones of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Types {
    pub(crate) facts: BTreeMap<String, Ec2InstanceType>,
    pub(crate) zones: BTreeMap<String, BTreeSet<String>>,
}

/// Every type of the region that can run Linux nodes.
pub(crate) async fn types(clients: &Clients, paces: &Paces) -> Result<Types, Fault> {
    let mut types = Types::default();
    let filters = [
        ("supported-virtualization-type", vec!["hvm"]),
        ("processor-info.supported-architecture", vec!["x86_64", "arm64"]),
    ]
    .map(|(name, values)| {
        let values = values.into_iter().map(str::to_owned).collect();
        Filter::builder().name(name).set_values(Some(values)).build()
    });
    let mut pages = clients
        .ec2
        .describe_instance_types()
        .set_filters(Some(filters.to_vec()))
        .max_results(100)
        .into_paginator()
        .send();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for info in paces.read.record("DescribeInstanceTypes", page)?.instance_types() {
            if let Some(facts) = facts(info) {
                types.facts.insert(facts.name.clone(), facts);
            }
        }
    }
    let mut pages = clients
        .ec2
        .describe_instance_type_offerings()
        .location_type(LocationType::AvailabilityZone)
        .max_results(1000)
        .into_paginator()
        .send();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for offering in paces.read.record("DescribeInstanceTypeOfferings", page)?.instance_type_offerings() {
            if let (Some(name), Some(zone)) = (offering.instance_type(), offering.location()) {
                types.zones.entry(name.as_str().to_owned()).or_default().insert(zone.to_owned());
            }
        }
    }
    Ok(types)
}

/// `None` for a type that can't run Linux nodes.
fn facts(info: &InstanceTypeInfo) -> Option<Ec2InstanceType> {
    let processor = info.processor_info()?;
    let arch = processor.supported_architectures().iter().find_map(|a| Arch::parse(a.as_str()))?;
    let network = info.network_info()?;
    let default_card = usize::try_from(network.default_network_card_index().unwrap_or(0)).unwrap_or(0);
    let card = network.network_cards().get(default_card);
    let gbps: f64 = network.network_cards().iter().filter_map(|c| c.baseline_bandwidth_in_gbps()).sum();
    let ebs = info.ebs_info();
    let classes = info.supported_usage_classes();
    let storage = info
        .instance_storage_info()
        .filter(|s| !matches!(s.nvme_support(), None | Some(EphemeralNvmeSupport::Unsupported)));
    Some(Ec2InstanceType {
        name: info.instance_type()?.as_str().to_owned(),
        arch,
        vcpus: positive(info.v_cpu_info()?.default_v_cpus()),
        memory_mib: u64::try_from(info.memory_info()?.size_in_mib().unwrap_or(0)).unwrap_or(0),
        hypervisor: info.hypervisor().map(|h| h.as_str().to_owned()).unwrap_or_default(),
        cpu_manufacturer: processor.manufacturer().unwrap_or_default().to_lowercase(),
        clock_mhz: thousandths(processor.sustained_clock_speed_in_ghz().unwrap_or(0.0)),
        ebs_mbps: ebs
            .filter(|e| e.ebs_optimized_support().is_some_and(|s| s.as_str() == "default"))
            .and_then(|e| e.ebs_optimized_info())
            .map_or(0, |i| positive(i.maximum_bandwidth_in_mbps())),
        network_mbps: thousandths(gbps),
        enis: positive(
            card.and_then(|c| c.maximum_network_interfaces())
                .or_else(|| network.maximum_network_interfaces()),
        ),
        ips_per_eni: positive(network.ipv4_addresses_per_interface()),
        efas: network.efa_info().map_or(0, |efa| positive(efa.maximum_efa_interfaces())),
        network_cards: positive(network.maximum_network_cards()).max(1),
        nvme_gb: storage
            .and_then(|s| s.total_size_in_gb())
            .and_then(|gb| u64::try_from(gb).ok())
            .unwrap_or(0),
        ebs_attachments: ebs.map_or(0, |e| positive(e.maximum_ebs_attachments())),
        attachments_shared: ebs
            .is_none_or(|e| e.attachment_limit_type().is_none_or(|l| *l == AttachmentLimitType::Shared)),
        encryption_in_transit: network.encryption_in_transit_supported().unwrap_or(false),
        gpu: info.gpu_info().and_then(|g| g.gpus().first()).map(|gpu| Device {
            // A slice of a GPU counts as none here, and as one in the device plugin.
            count: positive(gpu.count()).max(positive(gpu.logical_gpu_count())),
            manufacturer: gpu.manufacturer().unwrap_or_default().to_lowercase(),
            name: label_value(gpu.name()),
            memory_mib: gpu.memory_info().map_or(0, |m| positive(m.size_in_mib()).into()),
        }),
        accelerator: accelerator(info),
        on_demand: classes.contains(&UsageClassType::OnDemand),
        spot: classes.contains(&UsageClassType::Spot),
    })
}

fn accelerator(info: &InstanceTypeInfo) -> Option<Device> {
    let neuron = info.neuron_info().and_then(|n| n.neuron_devices().first()).map(|d| Device {
        count: positive(d.count()),
        manufacturer: "aws".to_owned(),
        name: label_value(d.name()),
        memory_mib: d.memory_info().map_or(0, |m| positive(m.size_in_mib()).into()),
    });
    neuron.or_else(|| {
        let d = info.inference_accelerator_info()?.accelerators().first()?;
        Some(Device {
            count: positive(d.count()),
            manufacturer: d.manufacturer().unwrap_or_default().to_lowercase(),
            name: label_value(d.name()),
            memory_mib: d.memory_info().map_or(0, |m| positive(m.size_in_mib()).into()),
        })
    })
}

fn label_value(name: Option<&str>) -> String {
    name.unwrap_or_default().to_lowercase().replace(' ', "-")
}

fn positive(n: Option<i32>) -> u32 {
    n.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "gigahertz and gigabits of one instance"
)]
fn thousandths(value: f64) -> u32 {
    (value * 1000.0).round() as u32
}
