//! `xtask catalog`: makes the built-in catalogue.
//!
//! ```text
//!   PyPI package moto: moto/ec2/resources/instance_types.json.gz,
//!                      .../instance_type_offerings/availability-zone/us-east-1.json.gz ─┐
//!   crates/xtask/data/prices-us-east-1.txt ─────────────────────────────────────────────┴─▶ catalog-us-east-1.txt
//! ```
//!
//! The package is installed by pip into a virtual environment under target/; Python's own gzip unpacks its
//! data, since this is the only place of the project that meets a gzip file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, bail};
use croft_cloud::{
    catalog::{COLUMNS, Entry, REGION, format_line},
    facts::{Arch, Device, Ec2InstanceType},
};
use croft_scheduler::Price;
use serde::Deserialize;

/// The version of moto whose data the catalogue is made from.
const MOTO: &str = "5.2.5";
const VENV: &str = "target/catalog-venv";
const OUTPUT: &str = "crates/cloud/data/catalog-us-east-1.txt";
const PRICES: &str = "crates/xtask/data/prices-us-east-1.txt";

/// Prints both data files as one JSON document.
const DUMP: &str = "\
import gzip, json, os, sys
import moto
root = os.path.join(os.path.dirname(moto.__file__), 'ec2', 'resources')
def load(*path):
    with gzip.open(os.path.join(root, *path)) as file:
        return json.load(file)
region = sys.argv[1]
json.dump({'types': load('instance_types.json.gz'),
           'offerings': load('instance_type_offerings', 'availability-zone', region + '.json.gz')}, sys.stdout)
";

/// Writes the catalogue under `root`.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let source = read_source(root)?;
    let prices_text =
        fs::read_to_string(root.join(PRICES)).with_context(|| format!("failed to read {PRICES}"))?;
    let prices = Prices::parse(&prices_text)?;
    let text = render(&source, &prices)?;
    let path = root.join(OUTPUT);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    }
    fs::write(&path, &text).with_context(|| format!("failed to write {}", path.display()))?;
    println!("wrote {OUTPUT}: {} lines, {} bytes", text.lines().count(), text.len());
    Ok(())
}

fn read_source(root: &Path) -> anyhow::Result<Source> {
    let python = root.join(VENV).join("bin/python");
    if !python.exists() {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(root.join(VENV)))?;
    }
    succeed(Command::new(&python).args(["-m", "pip", "install", "--quiet", &format!("moto=={MOTO}")]))?;
    let json = succeed(Command::new(&python).args(["-c", DUMP, REGION]))?;
    serde_json::from_slice(&json).context("failed to read the data of moto")
}

fn succeed(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("failed to start {command:?}"))?;
    if !output.status.success() {
        bail!("failed to run {command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// The price of each type.
struct Prices {
    date: String,
    prices: BTreeMap<String, Price>,
}

impl Prices {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let date = text
            .lines()
            .find_map(|line| line.strip_prefix("# date: "))
            .with_context(|| format!("{PRICES} has no line `# date: ...`"))?
            .to_owned();
        let mut prices = BTreeMap::new();
        for pair in text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace) {
            let (name, dollars) =
                pair.split_once('=').with_context(|| format!("{pair} in {PRICES} is not type=dollars"))?;
            let price = dollars.parse().ok().and_then(Price::from_dollars);
            let price = price.with_context(|| format!("{pair} in {PRICES} has no price"))?;
            prices.insert(name.to_owned(), price);
        }
        Ok(Self { date, prices })
    }
}

fn render(source: &Source, prices: &Prices) -> anyhow::Result<String> {
    let mut zones: BTreeMap<&str, BTreeSet<char>> = BTreeMap::new();
    for offering in &source.offerings {
        if let Some(letter) = offering.location.strip_prefix(REGION).and_then(|rest| rest.chars().next()) {
            zones.entry(&offering.instance_type).or_default().insert(letter);
        }
    }
    let mut text = format!(
        "# Instance types of {REGION}: what DescribeInstanceTypes and DescribeInstanceTypeOfferings say.\n\
         # Types and zones: data of the PyPI package moto {MOTO}.\n\
         # Prices: Linux, on-demand, {}, by type; a type without one has no known price.\n\
         # Written by `cargo run -p croft-xtask -- catalog`. Columns:\n# {COLUMNS}\n",
        prices.date
    );
    let mut count = 0;
    for (name, described) in &source.types {
        let (Some(zones), Some(facts)) = (zones.get(name.as_str()), described.facts(name)) else { continue };
        let entry = Entry { price: prices.prices.get(name).copied(), facts, zones: zones.iter().collect() };
        text.push_str(&format_line(&entry));
        text.push('\n');
        count += 1;
    }
    if count < 1000 {
        bail!("only {count} types were found in the data of moto {MOTO}: has its format changed?");
    }
    Ok(text)
}

#[derive(Deserialize)]
struct Source {
    types: BTreeMap<String, Described>,
    offerings: Vec<Location>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Location {
    instance_type: String,
    location: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Described {
    #[serde(default)]
    hypervisor: String,
    memory_info: Size,
    network_info: Network,
    processor_info: Processor,
    v_cpu_info: Cpus,
    ebs_info: Ebs,
    #[serde(default)]
    instance_storage_info: Option<Storage>,
    #[serde(default)]
    gpu_info: Option<Gpus>,
    #[serde(default)]
    inference_accelerator_info: Option<Accelerators>,
    #[serde(default)]
    neuron_info: Option<Neuron>,
    supported_usage_classes: Vec<String>,
    supported_virtualization_types: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    #[serde(rename = "SizeInMiB")]
    mib: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Network {
    #[serde(default)]
    default_network_card_index: usize,
    #[serde(default)]
    encryption_in_transit_supported: bool,
    ipv4_addresses_per_interface: u32,
    #[serde(default)]
    network_cards: Vec<Card>,
    #[serde(default)]
    efa_info: Option<Efa>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Efa {
    maximum_efa_interfaces: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Card {
    #[serde(default)]
    baseline_bandwidth_in_gbps: f64,
    maximum_network_interfaces: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Processor {
    manufacturer: String,
    supported_architectures: Vec<String>,
    #[serde(default)]
    sustained_clock_speed_in_ghz: f64,
}

#[derive(Deserialize)]
struct Cpus {
    #[serde(rename = "DefaultVCpus")]
    default_v_cpus: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Ebs {
    #[serde(default)]
    attachment_limit_type: String,
    #[serde(default)]
    maximum_ebs_attachments: u32,
    #[serde(default)]
    ebs_optimized_support: String,
    #[serde(default)]
    ebs_optimized_info: Option<EbsOptimized>,
}

#[derive(Deserialize)]
struct EbsOptimized {
    #[serde(rename = "MaximumBandwidthInMbps")]
    mbps: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Storage {
    #[serde(default)]
    nvme_support: String,
    #[serde(rename = "TotalSizeInGB")]
    gb: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Gpus {
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Gpu {
    count: u32,
    #[serde(default)]
    logical_gpu_count: u32,
    manufacturer: String,
    name: String,
    #[serde(default)]
    memory_info: Option<Size>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Accelerators {
    accelerators: Vec<Accelerator>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Accelerator {
    count: u32,
    manufacturer: String,
    name: String,
    #[serde(default)]
    memory_info: Option<Size>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Neuron {
    neuron_devices: Vec<NeuronDevice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NeuronDevice {
    count: u32,
    name: String,
    #[serde(default)]
    memory_info: Option<Size>,
}

impl Described {
    /// `None` for what no Linux node can run on: Macs, 32 bits, paravirtual machines.
    fn facts(&self, name: &str) -> Option<Ec2InstanceType> {
        let arch = self.processor_info.supported_architectures.iter().find_map(|a| match a.as_str() {
            "x86_64" => Some(Arch::Amd64),
            "arm64" => Some(Arch::Arm64),
            _ => None,
        })?;
        let offers = |class: &str| self.supported_usage_classes.iter().any(|c| c == class);
        if !self.supported_virtualization_types.iter().any(|v| v == "hvm") {
            return None;
        }
        let network = &self.network_info;
        let card = network.network_cards.get(network.default_network_card_index)?;
        let gbps: f64 = network.network_cards.iter().map(|c| c.baseline_bandwidth_in_gbps).sum();
        let ebs = &self.ebs_info;
        Some(Ec2InstanceType {
            name: name.to_owned(),
            arch,
            vcpus: self.v_cpu_info.default_v_cpus,
            memory_mib: self.memory_info.mib,
            hypervisor: self.hypervisor.clone(),
            cpu_manufacturer: self.processor_info.manufacturer.to_lowercase(),
            clock_mhz: thousandths(self.processor_info.sustained_clock_speed_in_ghz),
            ebs_mbps: match &ebs.ebs_optimized_info {
                Some(info) if ebs.ebs_optimized_support == "default" => info.mbps,
                _ => 0,
            },
            network_mbps: thousandths(gbps),
            enis: card.maximum_network_interfaces,
            ips_per_eni: network.ipv4_addresses_per_interface,
            efas: network.efa_info.as_ref().map_or(0, |efa| efa.maximum_efa_interfaces),
            network_cards: u32::try_from(network.network_cards.len()).ok()?,
            nvme_gb: match &self.instance_storage_info {
                Some(storage) if storage.nvme_support != "unsupported" => storage.gb,
                _ => 0,
            },
            ebs_attachments: ebs.maximum_ebs_attachments,
            attachments_shared: ebs.attachment_limit_type == "shared",
            encryption_in_transit: network.encryption_in_transit_supported,
            gpu: self.gpu_info.as_ref().and_then(|g| g.gpus.first()).map(|gpu| Device {
                count: gpu.count.max(gpu.logical_gpu_count),
                manufacturer: gpu.manufacturer.to_lowercase(),
                name: label_value(&gpu.name),
                memory_mib: gpu.memory_info.as_ref().map_or(0, |m| m.mib),
            }),
            accelerator: self.accelerator(),
            on_demand: offers("on-demand"),
            spot: offers("spot"),
        })
    }

    fn accelerator(&self) -> Option<Device> {
        let neuron = self.neuron_info.as_ref().and_then(|n| n.neuron_devices.first()).map(|n| Device {
            count: n.count,
            manufacturer: "aws".to_owned(),
            name: label_value(&n.name),
            memory_mib: n.memory_info.as_ref().map_or(0, |m| m.mib),
        });
        neuron.or_else(|| {
            let first = self.inference_accelerator_info.as_ref()?.accelerators.first()?;
            Some(Device {
                count: first.count,
                manufacturer: first.manufacturer.to_lowercase(),
                name: label_value(&first.name),
                memory_mib: first.memory_info.as_ref().map_or(0, |m| m.mib),
            })
        })
    }
}

fn label_value(name: &str) -> String {
    name.to_lowercase().replace(' ', "-")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "gigahertz and gigabits of one instance"
)]
fn thousandths(value: f64) -> u32 {
    (value * 1000.0).round() as u32
}
