//! The instance types of a region as AWS lists them, for plans without a cluster.

use croft_cloud::{
    Fault,
    catalog::REGION,
    facts::{Ec2InstanceType, Setup},
};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{CapacityType, Catalog, InstanceType, Offering};

use crate::{
    connect::{self, Access},
    offers,
    pace::Paces,
    prices::{self, OnDemand, Spot},
    types::{self, Types},
};

/// The catalogue of a region.
#[derive(Clone, Debug, Default)]
pub struct RegionCatalog {
    /// The region.
    pub region: String,
    /// Its types in all zones, with the settings of a class that names none.
    pub catalog: Catalog,
    /// Questions that AWS didn't answer, and what stands in the place of answers.
    pub warnings: Vec<String>,
}

/// Asks for the types, zones and prices of a region. A price that isn't answered is an estimate that the offering names as such,
/// or unknown.
///
/// # Errors
/// If AWS doesn't list the types.
pub async fn region_catalog(access: &Access) -> Result<RegionCatalog, Fault> {
    let clients = connect::connect(access).await;
    let paces = Paces::default();
    let types = types::types(&clients, &paces).await?;
    let now = SystemClock.wall().as_second();
    let (on_demand, spot) =
        tokio::join!(prices::on_demand(&clients, &paces), prices::spot(&clients, &paces, now));
    let mut warnings = Vec::new();
    let on_demand = on_demand.unwrap_or_else(|fault| {
        warnings.push(format!(
            "the price list was not read ({fault}): the prices of {REGION} stand in as estimates"
        ));
        OnDemand::default()
    });
    let spot = spot.unwrap_or_else(|fault| {
        warnings.push(format!(
            "the spot prices were not read ({fault}): shares of on-demand prices stand in as estimates"
        ));
        Spot::default()
    });
    let home = clients.region == REGION;
    let of = |facts: &Ec2InstanceType| instance_type(facts, &types, &on_demand, &spot, home);
    let instance_types = types.facts.values().filter_map(of).collect();
    Ok(RegionCatalog { region: clients.region, catalog: Catalog { instance_types }, warnings })
}

/// `None` if no zone offers the type.
fn instance_type(
    facts: &Ec2InstanceType,
    types: &Types,
    on_demand: &OnDemand,
    spot: &Spot,
    home: bool,
) -> Option<InstanceType> {
    let classes = [(CapacityType::OnDemand, facts.on_demand), (CapacityType::Spot, facts.spot)];
    let mut offerings = Vec::new();
    for zone in types.zones.get(&facts.name)? {
        for (capacity_type, _) in classes.iter().filter(|(_, is_sold)| *is_sold) {
            let (price, estimated) = offers::price(&facts.name, zone, *capacity_type, on_demand, spot, home);
            offerings.push(Offering {
                zone: zone.clone(),
                capacity_type: *capacity_type,
                price,
                available: true,
                estimated,
                available_count: None,
            });
        }
    }
    (!offerings.is_empty()).then(|| facts.instance_type(&Setup::default(), offerings))
}
