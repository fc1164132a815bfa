//! What it takes for a move to come about.

use crate::{Cluster, Machine};

/// Each time at least one more machine comes; a plan that needs more is far from what kube-scheduler does.
const TIMES: usize = 5;

/// Adds to a move's machines what kube-scheduler would lack. Nobody leads a pod that was evicted to where it was
/// planned: where several nodes have room, a plan that fills them to the brim need not come about.
///
/// `lacking` says which machines the move's pods need beside what is there and coming, were they bound as
/// [`Options::as_bound`](crate::Options::as_bound) has it. It sees `cluster` with the move's machines on their way, and
/// `cluster` is left as it was. None if there is no end of machines that lack.
///
/// # Errors
///
/// Those of `lacking`.
pub fn complete<E>(
    cluster: &mut Cluster,
    mut machines: Vec<Machine>,
    mut lacking: impl FnMut(&Cluster) -> Result<Vec<Machine>, E>,
) -> Result<Option<Vec<Machine>>, E> {
    // Of one width, so that where two are equally empty the first launched comes first, however many there are.
    let name = |at: usize| format!("\u{1}?{at:09}");
    let mut known = 0;
    let mut result = Ok(None);
    for _ in 0..TIMES {
        for (at, machine) in machines.iter().enumerate().skip(known) {
            cluster.upsert_coming(machine.coming(&name(at)));
        }
        known = machines.len();
        match lacking(cluster) {
            Ok(more) if more.is_empty() => {
                result = Ok(Some(machines));
                break;
            }
            Ok(more) => {
                for machine in &mut machines {
                    machine.pods.retain(|pod| !more.iter().any(|other| other.pods.contains(pod)));
                }
                machines.extend(more);
            }
            Err(why) => {
                result = Err(why);
                break;
            }
        }
    }
    for at in 0..known {
        cluster.remove_coming(&name(at));
    }
    result
}
