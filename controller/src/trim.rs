//! Objects of the API server without what nobody here reads and most of their memory goes to.

use k8s_openapi::api::core::v1::Node;
use kube::Resource;

/// Without who wrote which field.
pub fn trim<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Without that, and without the images that a node holds.
pub fn trim_node(node: Node) -> Node {
    let mut node = trim(node);
    if let Some(status) = &mut node.status {
        status.images = None;
    }
    node
}
