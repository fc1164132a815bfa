//! KWOK plays the kubelets of the lab's nodes: kubelets.yaml has its stages, this file its permissions.

use serde_json::{Value, json};

/// The label by which KWOK selects its nodes. Removing it stops the node's kubelet.
pub const PLAYED: (&str, &str) = ("lab.croft.dev/kubelet", "kwok");
/// KWOK's user.
pub(crate) const USER: &str = "lab:kubelets";
/// KWOK's configuration and stages.
pub(crate) const CONFIGURATION: &str = include_str!("kubelets.yaml");

/// Permissions of all kubelets together, without those used only at registration.
pub(crate) fn rights() -> [Value; 2] {
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": USER},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["get", "patch", "update"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "delete"]},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                 "verbs": ["get", "list", "watch", "create", "patch", "update", "delete"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        }),
    ]
}
