//! The price list: GetProducts for EC2, paged, each product as a JSON text as AWS sends it.

use serde_json::{Value, json};

use crate::{
    answer::{Answer, Call, Outcome, Refusal},
    world::World,
};

/// Products on a page, the limit of AWS.
const PAGE: usize = 100;

impl World {
    pub(crate) fn pricing(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        if call.action != "GetProducts" {
            return Err(Refusal::new(
                "UnknownOperationException",
                format!("{} is not simulated", call.action),
            ));
        }
        if call.json.get("ServiceCode").and_then(Value::as_str) != Some("AmazonEC2") {
            return Err(Refusal::new("NotFoundException", "Only AmazonEC2 is simulated"));
        }
        let empty = Vec::new();
        let filters = call.json.get("Filters").and_then(Value::as_array).unwrap_or(&empty);
        let wanted = |field: &str| {
            filters
                .iter()
                .find(|f| f.get("Field").and_then(Value::as_str) == Some(field))
                .and_then(|f| f.get("Value"))
                .and_then(Value::as_str)
        };
        if wanted("regionCode").is_some_and(|region| region != self.settings.region) {
            return Ok(Answer::Json(json!({"FormatVersion": "aws_v1", "PriceList": []})));
        }
        let from: usize =
            call.json.get("NextToken").and_then(Value::as_str).and_then(|t| t.parse().ok()).unwrap_or(0);
        let names: Vec<&str> = self
            .market
            .entries()
            .filter(|e| e.facts.on_demand)
            .map(|e| e.facts.name.as_str())
            .filter(|name| wanted("instanceType").is_none_or(|w| w == *name))
            .collect();
        let products: Vec<Value> = names
            .iter()
            .skip(from)
            .take(PAGE)
            .map(|name| Value::String(self.product(name).to_string()))
            .collect();
        let mut answer = json!({"FormatVersion": "aws_v1", "PriceList": products});
        if from + PAGE < names.len()
            && let Some(map) = answer.as_object_mut()
        {
            map.insert("NextToken".to_owned(), Value::String((from + PAGE).to_string()));
        }
        Ok(Answer::Json(answer))
    }

    fn product(&self, name: &str) -> Value {
        let price = self.market.on_demand(name).to_string();
        json!({
            "product": {
                "productFamily": "Compute Instance",
                "sku": name,
                "attributes": {
                    "instanceType": name, "regionCode": self.settings.region, "operatingSystem": "Linux",
                    "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA", "marketoption": "OnDemand",
                },
            },
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": price}}}}}},
        })
    }
}
