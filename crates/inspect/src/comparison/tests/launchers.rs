//! Launchers and groups by the labels of nodes.

use serde_json::{Value, json};

use super::world::node;
use crate::comparison::{
    Launcher, LeftOut,
    launcher::{group, left_out},
};

fn with(labels: &Value) -> k8s_openapi::api::core::v1::Node {
    serde_json::from_value(node("n", "f.large", labels)).unwrap()
}

#[test]
fn labels_of_a_node_tell_its_launcher_and_its_group() {
    for (labels, launcher, title) in [
        (json!({"karpenter.sh/nodepool": "default"}), Launcher::Karpenter, "NodePool default"),
        (json!({"karpenter.sh/provisioner-name": "old"}), Launcher::Karpenter, "Provisioner old"),
        (
            json!({"karpenter.sh/nodepool": "general-purpose", "eks.amazonaws.com/compute-type": "auto"}),
            Launcher::AutoMode,
            "NodePool general-purpose",
        ),
        (
            json!({"karpenter.sh/nodepool": "system", "eks.amazonaws.com/instance-family": "m7g"}),
            Launcher::AutoMode,
            "NodePool system",
        ),
        (
            json!({"eks.amazonaws.com/nodegroup": "web", "alpha.eksctl.io/nodegroup-name": "web"}),
            Launcher::ManagedNodeGroup,
            "node group web",
        ),
        (json!({"alpha.eksctl.io/nodegroup-name": "own"}), Launcher::Eksctl, "eksctl group own"),
        (json!({"kops.k8s.io/instancegroup": "nodes"}), Launcher::Kops, "instance group nodes"),
        (json!({"team": "a"}), Launcher::Unknown, "other nodes"),
    ] {
        assert_eq!(group(&with(&labels)), (launcher, title.to_owned()), "{labels}");
        assert_eq!(left_out(&with(&labels)), None, "{labels}");
    }
}

#[test]
fn nodes_that_croft_would_launch_none_of_are_left_out() {
    for (labels, why) in [
        (json!({"node-role.kubernetes.io/control-plane": ""}), LeftOut::ControlPlane),
        (
            json!({"node-role.kubernetes.io/master": "", "kops.k8s.io/instancegroup": "masters"}),
            LeftOut::ControlPlane,
        ),
        (json!({"eks.amazonaws.com/compute-type": "fargate"}), LeftOut::Fargate),
        (json!({"eks.amazonaws.com/compute-type": "hybrid"}), LeftOut::Hybrid),
        (json!({"kubernetes.io/os": "windows", "eks.amazonaws.com/nodegroup": "win"}), LeftOut::Windows),
    ] {
        assert_eq!(left_out(&with(&labels)), Some(why), "{labels}");
    }
}
