//! The instance types of a class: offerings, prices, and capacity as nodes report it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use croft_api::EC2NodeClass;
use croft_cloud::{
    CloudError, Launched, OfferingKey,
    catalog::{self, builtin_entries, estimate_spot},
    class::setup,
    facts::{EFA, Ec2InstanceType, Setup, node_labels},
};
use croft_scheduler::{CapacityType, InstanceType, Offering, Price, Resources};

use crate::{
    class::Found,
    discovery::Image,
    instances::DescribedInstance,
    memory::BuiltTypes,
    observed::Observed,
    prices::{self, OnDemand, Spot},
    provider::AwsProvider,
    types::{self, Types},
};
use croft_runtime::clock::{Clock, SystemClock};

/// The newest image that an instance of the type can boot and that has drivers for its devices. A type without one isn't
/// launched: its pods would find no device.
pub(crate) fn image_for<'a>(facts: &Ec2InstanceType, images: &'a [Image]) -> Option<&'a Image> {
    let maker = facts.gpu.iter().chain(&facts.accelerator).next().map(|d| d.manufacturer.as_str());
    images.iter().find(|image| image.arch == facts.arch && image.serves.includes(maker))
}

impl AwsProvider {
    /// Types as EC2 describes them, else those of the built-in catalogue.
    pub(crate) async fn known_types(&self) -> Arc<Types> {
        match self.types.get(&(), types::types(&self.clients, &self.paces)).await {
            Ok((types, _)) if !types.facts.is_empty() => types,
            Ok(_) => Arc::new(self.built_in_types()),
            Err(fault) => {
                tracing::warn!(error = %fault, "the instance types could not be asked for: the built-in catalogue is used");
                Arc::new(self.built_in_types())
            }
        }
    }

    fn built_in_types(&self) -> Types {
        let region = &self.clients.region;
        let mut types = Types::default();
        for entry in builtin_entries() {
            let name = entry.facts.name.clone();
            let zones: BTreeSet<String> = if region == catalog::REGION {
                entry.zones.chars().map(|letter| format!("{region}{letter}")).collect()
            } else {
                // Zones of other regions are unknown offline: nearly all regions have the first three.
                ["a", "b", "c"].map(|letter| format!("{region}{letter}")).into()
            };
            types.zones.insert(name.clone(), zones);
            types.facts.insert(name, entry.facts.clone());
        }
        types
    }

    async fn on_demand_prices(&self) -> Arc<OnDemand> {
        let asked = self.on_demand.get(&(), prices::on_demand(&self.clients, &self.paces)).await;
        asked.map_or_else(
            |fault| {
                tracing::debug!(error = %fault, "the price list could not be asked for: the built-in prices are used");
                Arc::default()
            },
            |(prices, _)| prices,
        )
    }

    async fn spot_prices(&self) -> Arc<Spot> {
        let now = SystemClock.wall().as_second();
        let asked = self.spot.get(&(), prices::spot(&self.clients, &self.paces, now)).await;
        asked.map_or_else(
            |fault| {
                tracing::debug!(error = %fault, "the spot prices could not be asked for: estimates are used");
                Arc::default()
            },
            |(prices, _)| prices,
        )
    }

    /// The types that the class allows.
    pub(crate) async fn offers(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        let found = self.look_up(class).await;
        if !found.findings.is_ready() {
            return Err(CloudError::ClassNotReady {
                class: class.metadata.name.clone().unwrap_or_default(),
                why: found.findings.why_not().unwrap_or_default().to_owned(),
            });
        }
        let (types, on_demand, spot) =
            tokio::join!(self.known_types(), self.on_demand_prices(), self.spot_prices());
        let name = class.metadata.name.clone().unwrap_or_default();
        let now = self.now();
        let mut memory = self.memory();
        let aside: BTreeSet<OfferingKey> =
            memory.offerings.current(now).map(|aside| aside.key.clone()).collect();
        let dry: BTreeSet<String> = memory.subnets.current(now).map(|aside| aside.key.clone()).collect();
        // Shared answers are distinguished by address: a new answer is a new allocation, and the cached one of this
        // class keeps the old one alive.
        let from = format!(
            "{:?} {:?} {:p} {:p} {:p} {:?} {:?} {:?} {aside:?} {dry:?} {:?}",
            setup(&class.spec, None, self.options.prefix_delegation),
            class.spec.block_device_mappings,
            Arc::as_ptr(&types),
            Arc::as_ptr(&on_demand),
            Arc::as_ptr(&spot),
            found.subnets,
            found.images,
            found.reservations,
            memory.observed.changes(),
        );
        if let Some(kept) = memory.built.get(&name).filter(|kept| kept.from == from) {
            return Ok(Arc::clone(&kept.types));
        }
        let built: Arc<[InstanceType]> = {
            let build = Build {
                class,
                found: &found,
                types: &types,
                on_demand: &on_demand,
                spot: &spot,
                aside: &aside,
                dry: &dry,
                observed: &memory.observed,
                prefix_delegation: self.options.prefix_delegation,
                home: self.clients.region == catalog::REGION,
            };
            build.all().into()
        };
        memory.built.insert(name, BuiltTypes { from, types: Arc::clone(&built) });
        Ok(built)
    }

    /// An instance with the resources and labels of its type.
    pub(crate) async fn describe_launched(&self, seen: DescribedInstance) -> Launched {
        let DescribedInstance { instance, efas, .. } = seen;
        let types = self.known_types().await;
        let (on_demand, spot) = tokio::join!(self.on_demand_prices(), self.spot_prices());
        let home = self.clients.region == catalog::REGION;
        let memory = self.memory();
        let class = instance.tags.get(croft_cloud::tags::CLASS);
        let setup = class.and_then(|class| memory.setup_of(class, &instance.image_id)).unwrap_or_default();
        let (price, price_estimated) =
            price(&instance.instance_type, &instance.zone, instance.capacity_type, &on_demand, &spot, home);
        let Some(facts) = types.facts.get(&instance.instance_type) else {
            let labels = BTreeMap::new();
            return Launched {
                instance,
                capacity: Default::default(),
                allocatable: Default::default(),
                price,
                price_estimated,
                labels,
            };
        };
        let mut instance_type = facts.instance_type(&setup, Vec::new());
        let class = class.map_or("", String::as_str);
        memory.observed.correct(&mut instance_type, class, &instance.image_id, &setup);
        // Adapters exist only if the launch requested them.
        if efas == 0 && instance_type.capacity.get(EFA) > 0 {
            let mut capacity = Resources::new();
            for (name, amount) in instance_type.capacity.iter().filter(|(name, _)| *name != EFA) {
                capacity.set(name, amount);
            }
            instance_type.capacity = capacity;
        } else if efas > 0 {
            instance_type.capacity.set(EFA, i64::from(efas));
        }
        let labels = node_labels(&instance_type, &instance.zone, instance.capacity_type);
        Launched {
            capacity: instance_type.capacity.clone(),
            allocatable: instance_type.allocatable(),
            price,
            price_estimated,
            labels,
            instance,
        }
    }
}

/// Prices of the built-in catalogue by type.
static BUILT_IN: LazyLock<BTreeMap<&str, Price>> = LazyLock::new(|| {
    builtin_entries().iter().filter_map(|entry| Some((entry.facts.name.as_str(), entry.price?))).collect()
});

/// The price of an offering, and whether it is an estimate.
pub(crate) fn price(
    name: &str,
    zone: &str,
    capacity_type: CapacityType,
    on_demand: &OnDemand,
    spot: &Spot,
    home: bool,
) -> (Option<Price>, bool) {
    // Built-in prices are those of one region; elsewhere they are an estimate.
    let listed = on_demand.get(name).copied();
    let built_in = || BUILT_IN.get(name).copied();
    match capacity_type {
        CapacityType::Reserved => (Some(Price::ZERO), false),
        CapacityType::OnDemand => match listed {
            Some(price) => (Some(price), false),
            None => {
                let price = built_in();
                (price, price.is_some() && !home)
            }
        },
        CapacityType::Spot => match spot.get(name).and_then(|zones| zones.get(zone)) {
            Some(price) => (Some(*price), false),
            None => {
                let price = listed.or_else(built_in).map(estimate_spot);
                (price, price.is_some())
            }
        },
    }
}

struct Build<'a> {
    class: &'a EC2NodeClass,
    found: &'a Found,
    types: &'a Types,
    on_demand: &'a OnDemand,
    spot: &'a Spot,
    aside: &'a BTreeSet<OfferingKey>,
    dry: &'a BTreeSet<String>,
    observed: &'a Observed,
    prefix_delegation: bool,
    home: bool,
}

impl Build<'_> {
    fn all(&self) -> Vec<InstanceType> {
        let of = |image: &Image| setup(&self.class.spec, Some(&image.disks), self.prefix_delegation);
        let images = &self.found.images.found;
        let setups: BTreeMap<&str, Setup> =
            images.iter().map(|image| (image.id.as_str(), of(image))).collect();
        let zones: BTreeSet<&str> = self.found.subnets.iter().map(|s| s.zone.as_str()).collect();
        let roomy: BTreeSet<&str> = self
            .found
            .subnets
            .iter()
            .filter(|s| s.free > 0 && !self.dry.contains(&s.id))
            .map(|s| s.zone.as_str())
            .collect();
        let class = self.class.metadata.name.as_deref().unwrap_or_default();
        let mut types = Vec::new();
        for (name, facts) in &self.types.facts {
            let Some(image) = image_for(facts, images) else { continue };
            let Some(setup) = setups.get(image.id.as_str()) else { continue };
            let offerings = self.offerings(name, facts, &zones, &roomy);
            if offerings.is_empty() {
                continue;
            }
            let mut instance_type = facts.instance_type(setup, offerings);
            self.observed.correct(&mut instance_type, class, &image.id, setup);
            types.push(instance_type);
        }
        types
    }

    /// The type's zones with a subnet of the class; available if that subnet has a free address.
    fn offerings(
        &self,
        name: &str,
        facts: &Ec2InstanceType,
        zones: &BTreeSet<&str>,
        roomy: &BTreeSet<&str>,
    ) -> Vec<Offering> {
        let mut offerings = Vec::new();
        let Some(offered) = self.types.zones.get(name) else { return offerings };
        for zone in offered.iter().filter(|zone| zones.contains(zone.as_str())) {
            let mut offer = |capacity_type, available_count: Option<u32>| {
                let key = OfferingKey { instance_type: name.to_owned(), zone: zone.clone(), capacity_type };
                let (price, estimated) =
                    price(name, zone, capacity_type, self.on_demand, self.spot, self.home);
                offerings.push(Offering {
                    zone: zone.clone(),
                    capacity_type,
                    price,
                    available: available_count != Some(0)
                        && roomy.contains(zone.as_str())
                        && !self.aside.contains(&key),
                    estimated,
                    available_count,
                });
            };
            if facts.on_demand {
                offer(CapacityType::OnDemand, None);
            }
            if facts.spot {
                offer(CapacityType::Spot, None);
            }
            let reserved: Vec<u32> = self
                .found
                .reservations
                .iter()
                .filter(|r| r.instance_type == name && r.zone == *zone)
                .map(|r| r.free)
                .collect();
            if !reserved.is_empty() {
                offer(CapacityType::Reserved, Some(reserved.iter().sum()));
            }
        }
        offerings
    }
}
