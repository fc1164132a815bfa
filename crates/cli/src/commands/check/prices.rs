//! Are the prices published ones? The controller estimates what it can't read, and decides by the estimates.

use croft_api::NodeClaim;
use kube::Client;

use super::report::{Finding, Problem, warn};
use crate::{failure::told, own_objects::claims, table::counted};

/// No node's price is an estimate.
pub(super) async fn check(client: &Client) -> Finding {
    verdict(&claims(client).await.map_err(|error| Problem::unknown(told(&error)))?)
}

fn verdict(claims: &[NodeClaim]) -> Finding {
    let estimated = |spot: bool| {
        let of_kind = claims.iter().filter_map(|claim| claim.status.as_ref());
        let of_kind = of_kind.filter(|status| (status.capacity_type.as_deref() == Some("spot")) == spot);
        of_kind.filter(|status| status.price_estimated).count()
    };
    let (spot, others) = (estimated(true), estimated(false));
    let which = match (others, spot) {
        (0, 0) => {
            return Ok(format!("no price of {} is an estimate", counted(claims.len(), "NodeClaim")));
        }
        (0, spot) => format!("{} on spot", counted(spot, "node")),
        (others, 0) => counted(others, "node"),
        (others, spot) => format!("{} and {} on spot", counted(others, "node"), counted(spot, "node")),
    };
    let mut remedies = Vec::new();
    if others > 0 {
        remedies.push(
            "grant pricing:GetProducts, and a way to the Price List, which has endpoints in few regions \
             (docs/aws.md#private-clusters); GovCloud and the isolated partitions have none",
        );
    }
    if spot > 0 {
        remedies.push("grant ec2:DescribeSpotPriceHistory");
    }
    warn(
        format!("the price of {which} is an estimate: choices and the limits of cost go by it"),
        remedies.join("\n"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::check::report::Status;

    fn claim(capacity_type: &str, estimated: bool) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": "a"},
            "spec": {"pool": "p", "nodeClassRef": {"name": "c"}, "instanceTypes": ["m5.large"], "zones": ["a"],
                     "capacityType": capacity_type},
            "status": {"capacityType": capacity_type, "priceEstimated": estimated},
        }))
        .unwrap()
    }

    #[test]
    fn estimates_are_counted_with_the_right_that_they_lack() {
        assert!(verdict(&[claim("on-demand", false)]).is_ok());
        for (claims, what, right) in [
            (vec![claim("on-demand", true)], "the price of 1 node is", "pricing:GetProducts"),
            (vec![claim("spot", true)], "the price of 1 node on spot is", "DescribeSpotPriceHistory"),
            (vec![claim("spot", true), claim("on-demand", true)], "1 node and 1 node on spot", "GetProducts"),
        ] {
            let found = verdict(&claims);
            assert!(
                matches!(&found, Err(f) if f.status == Status::Warn && f.what.contains(what) && f.remedy.contains(right)),
                "{found:?}"
            );
        }
    }
}
