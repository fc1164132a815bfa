//! Plans the instances for three pods: the scheduler as a library.

use std::{error::Error, sync::Arc};

use croft_scheduler::{Catalog, Cluster, Options, Pool, solve};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let catalog: Catalog = serde_json::from_value(json!({"instanceTypes": [{
        "name": "m.4", "arch": "amd64", "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "offerings": [{"zone": "a", "capacityType": "on-demand", "price": 0.2}],
    }]}))?;
    let mut cluster = Cluster::new();
    let (name, key, value) = ("default".to_owned(), "node-pool".to_owned(), "default".to_owned());
    let instance_types = Arc::from(catalog.instance_types);
    cluster.upsert_pool(Pool { name, key, value, instance_types, launches: true, ..Pool::default() })?;
    for number in 0..3 {
        cluster.upsert_pod(&serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": format!("web-{number}")},
            "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]},
        }))?)?;
    }
    let plan = solve(&cluster, &Options::default(), &|| false);
    for instance in &plan.instances {
        println!("{} in zone {} for {} pods", instance.instance_type, instance.zone, instance.pods.len());
    }
    Ok(())
}
