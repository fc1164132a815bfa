//! 5,000 pods of 20 tenants: time from their Deployments to all bound.

use std::fmt::{self, Display};

use tokio::time::Instant;

use crate::{
    cluster::{self, Load, MeasuredCluster},
    processes::Usage,
    reference::{PodConstraints, Reference},
    stopwatch::Stopwatch,
};

const TENANTS: usize = 20;
const PODS_EACH: usize = 250;
const PODS: usize = TENANTS * PODS_EACH;
const LOAD: Load = Load { replicas: PODS_EACH, cpu: "1", memory: "1536Mi" };

/// The figures.
#[derive(Debug)]
pub(crate) struct Figures {
    ratio: f64,
    /// To the control plane without Croft.
    ratio_reference: f64,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bind5000_ratio={:.2} bind5000_ratio_reference={:.2}", self.ratio, self.ratio_reference)
    }
}

pub(crate) async fn run() -> anyhow::Result<Figures> {
    let cluster = MeasuredCluster::usual(TENANTS);
    println!("\n{PODS} pods of {TENANTS} tenants, from their Deployments to all bound");
    let mut reference = Reference::start(&cluster).await?;
    let (mut stack, mut audit) = cluster.start().await?;
    let client = stack.plane.admin().await?;
    let mut watch = Stopwatch::start(client.clone());
    audit.take()?;
    let before = Usage::of(&stack)?;
    let begun = Instant::now();
    cluster.deploy(&client, LOAD).await?;
    let with = watch.until(|count| count.bound == PODS).await?.duration_since(begun).as_secs_f64();
    let used = Usage::of(&stack)?.since(&before);
    let requests = audit.take()?;
    let claims = cluster::claims(&client).await?;
    println!("{with:.1} s onto {} new nodes ({})", claims.len(), cluster::kinds(&claims));
    println!("  CPU seconds: {used}\n  requests of the controller: {requests}");
    watch.until(|count| count.running == PODS).await?;
    let constraints = PodConstraints::of_tenants(&cluster, &client).await?;
    cluster.withdraw(&client).await?;
    watch.until(|count| count.pods == 0).await?;

    let before = Usage::of(&stack)?;
    let begun = Instant::now();
    cluster.deploy(&client, LOAD).await?;
    let without = watch.until(|count| count.bound == PODS).await?.duration_since(begun).as_secs_f64();
    println!("{without:.1} s onto the same nodes, once they are there");
    println!("  CPU seconds: {}", Usage::of(&stack)?.since(&before));
    cluster.withdraw(&client).await?;
    watch.until(|count| count.pods == 0).await?;

    reference.copy_nodes(&client).await?;
    let bare = reference.measure(&cluster, LOAD, &constraints, |count| count.bound == PODS).await?;
    stack.check()?;
    Ok(Figures { ratio: with / without, ratio_reference: with / bare })
}
