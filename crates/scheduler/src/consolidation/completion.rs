//! Instances that a command lacks under kube-scheduler's own placement.

use crate::{Cluster, PlannedInstance};

/// Each round adds at least one instance; a plan that needs more rounds is far from what kube-scheduler does.
const TIMES: usize = 5;

/// Adds to a command the instances that it lacks when kube-scheduler binds the pods. Evicted pods are not
/// nominated, so the planned placement is not guaranteed: where several nodes have room, a plan that fills
/// them to the brim may leave pods behind.
///
/// `lacking` returns the instances that the command's pods need beside what exists and is coming, were they
/// bound as with [`Options::simulate_default_scheduler`](crate::Options::simulate_default_scheduler). It sees
/// `cluster` with the command's instances as coming nodes; `cluster` is restored afterwards. Returns `None`
/// if more instances are lacking after the last round.
///
/// # Errors
///
/// Their count in `lacking`.
pub fn complete<E>(
    cluster: &mut Cluster,
    mut instances: Vec<PlannedInstance>,
    mut lacking: impl FnMut(&Cluster) -> Result<Vec<PlannedInstance>, E>,
) -> Result<Option<Vec<PlannedInstance>>, E> {
    // Fixed width, so that among equally empty nodes the first launched comes first, however many there are.
    let name = |number: usize| format!("\u{1}?{number:09}");
    let mut known = 0;
    let mut result = Ok(None);
    for _ in 0..TIMES {
        for (number, instance) in instances.iter().enumerate().skip(known) {
            cluster.upsert_coming(instance.coming(&name(number)));
        }
        known = instances.len();
        match lacking(cluster) {
            Ok(more) if more.is_empty() => {
                result = Ok(Some(instances));
                break;
            }
            Ok(more) => {
                for instance in &mut instances {
                    instance.pods.retain(|pod| !more.iter().any(|other| other.pods.contains(pod)));
                }
                instances.extend(more);
            }
            Err(why) => {
                result = Err(why);
                break;
            }
        }
    }
    for number in 0..known {
        cluster.remove_coming(&name(number));
    }
    result
}
