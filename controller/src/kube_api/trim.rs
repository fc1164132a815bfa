//! Drops fields of watched objects that no decider reads and that take most of the memory.

use k8s_openapi::api::core::v1::Node;
use kube::Resource;

/// Drops `managedFields`.
pub fn trim<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Drops `managedFields` and the list of images.
pub fn trim_node(node: Node) -> Node {
    let mut node = trim(node);
    if let Some(status) = &mut node.status {
        status.images = None;
    }
    node
}
