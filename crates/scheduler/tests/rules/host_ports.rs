//! Host ports.

use serde_json::json;

use crate::build::{cluster, kinds, plan, pod, pool};

#[test]
fn host_ports_conflict_by_protocol_and_address() {
    let ports = |port: i32, ip: &str, protocol: &str| {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "ports": [{"containerPort": 1, "hostPort": port, "hostIP": ip, "protocol": protocol}]}]}})
    };
    for (other, instances) in [
        (ports(80, "10.0.0.1", "TCP"), 2),
        (ports(80, "10.0.0.2", "TCP"), 1),
        (ports(80, "10.0.0.1", "UDP"), 1),
        (ports(81, "10.0.0.1", "TCP"), 1),
        (ports(80, "0.0.0.0", "TCP"), 2),
        (ports(80, "", "TCP"), 2),
    ] {
        let first = pod("a", "100m", "64Mi", ports(80, "10.0.0.1", "TCP"));
        let second = pod("b", "100m", "64Mi", other.clone());
        let plan = plan(&cluster(vec![pool("p", kinds())], &[first, second]));
        assert_eq!(plan.instances.len(), instances, "{other}");
    }
}
