//! Prices: on-demand from the price list, spot from its history.

use std::collections::BTreeMap;

use aws_sdk_pricing::types::{Filter, FilterType};
use aws_smithy_types::DateTime;
use croft_cloud::Fault;
use croft_scheduler::Price;
use serde_json::Value;

use crate::{connect::Clients, pace::Paces, refusal};

/// On-demand prices of Linux instances by type.
pub(crate) type OnDemand = BTreeMap<String, Price>;
/// Spot prices by type and zone.
pub(crate) type Spot = BTreeMap<String, BTreeMap<String, Price>>;

/// The on-demand prices of the region.
pub(crate) async fn on_demand(clients: &Clients, paces: &Paces) -> Result<OnDemand, Fault> {
    let filters = [
        ("regionCode", clients.region.as_str()),
        ("serviceCode", "AmazonEC2"),
        ("operatingSystem", "Linux"),
        ("tenancy", "Shared"),
        ("preInstalledSw", "NA"),
        ("capacitystatus", "Used"),
        ("marketoption", "OnDemand"),
    ];
    let pricing = clients.pricing.as_ref().ok_or_else(|| {
        refusal::of_code("GetProducts", "NoPriceList".to_owned(), format!("in {}", clients.region), None)
    })?;
    let mut request = pricing.get_products().service_code("AmazonEC2").max_results(100);
    for (field, value) in filters {
        // Every required part is set, so building can't fail; a missing filter would only add products.
        if let Ok(filter) = Filter::builder().field(field).value(value).r#type(FilterType::TermMatch).build()
        {
            request = request.filters(filter);
        }
    }
    let mut pages = request.into_paginator().send();
    let mut prices = OnDemand::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for product in paces.read.record("GetProducts", page)?.price_list() {
            if let Some((name, price)) = read_product(product, clients.currency) {
                prices.insert(name, price);
            }
        }
    }
    Ok(prices)
}

/// Type and hourly price of a product of the price list, if it has both.
fn read_product(text: &str, currency: &str) -> Option<(String, Price)> {
    let product: Value = serde_json::from_str(text).ok()?;
    let name = product.pointer("/product/attributes/instanceType")?.as_str()?.to_owned();
    let terms = product.pointer("/terms/OnDemand")?.as_object()?;
    let price: Price = terms
        .values()
        .filter_map(|term| term.get("priceDimensions")?.as_object())
        .flat_map(|dimensions| dimensions.values())
        .filter(|dimension| dimension.get("unit").and_then(Value::as_str) == Some("Hrs"))
        .find_map(|dimension| dimension.get("pricePerUnit")?.get(currency)?.as_str()?.parse().ok())?;
    // Products for reserved capacity cost nothing and aren't offerings.
    (price > Price::ZERO).then_some((name, price))
}

/// The present spot prices. `now` is in seconds since 1970.
pub(crate) async fn spot(clients: &Clients, paces: &Paces, now: i64) -> Result<Spot, Fault> {
    let mut pages = clients
        .ec2
        .describe_spot_price_history()
        .product_descriptions("Linux/UNIX")
        .product_descriptions("Linux/UNIX (Amazon VPC)")
        // Without a time range, or with one that begins now, the answer is the last price of each offering.
        .start_time(DateTime::from_secs(now))
        .into_paginator()
        .send();
    let mut prices = Spot::new();
    let mut newest: BTreeMap<(String, String), DateTime> = BTreeMap::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for entry in paces.read.record("DescribeSpotPriceHistory", page)?.spot_price_history() {
            let (Some(name), Some(zone), Some(price)) = (
                entry.instance_type().map(|t| t.as_str().to_owned()),
                entry.availability_zone().map(str::to_owned),
                // No offering is for nothing.
                entry.spot_price().and_then(|p| p.parse().ok()).filter(|price| *price > Price::ZERO),
            ) else {
                continue;
            };
            let at = entry.timestamp().copied().unwrap_or(DateTime::from_secs(0));
            let key = (name.clone(), zone.clone());
            if newest.get(&key).is_none_or(|known| *known <= at) {
                newest.insert(key, at);
                prices.entry(name).or_default().insert(zone, price);
            }
        }
    }
    Ok(prices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_gives_its_hourly_price() {
        let product = |unit: &str, usd: &str| {
            format!(
                r#"{{"product": {{"attributes": {{"instanceType": "m5.large"}}}}, "terms": {{"OnDemand": {{"a": {{
                "priceDimensions": {{"b": {{"unit": "{unit}", "pricePerUnit": {{"USD": "{usd}"}}}}}}}}}}}}}}"#
            )
        };
        assert_eq!(
            read_product(&product("Hrs", "0.0960000000"), "USD"),
            Some(("m5.large".to_owned(), Price::from_micros(96_000)))
        );
        assert_eq!(read_product(&product("Hrs", "0.0000000000"), "USD"), None, "a reservation's");
        assert_eq!(read_product(&product("Quantity", "5"), "USD"), None);
        assert_eq!(read_product("{", "USD"), None);
        let yuan = product("Hrs", "0.62").replace("USD", "CNY");
        assert_eq!(read_product(&yuan, "CNY"), Some(("m5.large".to_owned(), Price::from_micros(620_000))));
        assert_eq!(read_product(&yuan, "USD"), None);
    }
}
