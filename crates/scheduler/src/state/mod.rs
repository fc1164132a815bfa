//! The state that a solve reads: Kubernetes objects, pools and catalogues, interned and indexed as they are upserted.

pub(crate) mod attachments;
pub(crate) mod catalog_index;
pub(crate) mod claim;
pub(crate) mod cluster;
pub(crate) mod id_reuse;
pub(crate) mod interner;
pub(crate) mod node;
pub(crate) mod node_requirement;
pub(crate) mod pod;
pub(crate) mod pod_shape;
pub(crate) mod pool;
pub(crate) mod requests;
pub(crate) mod selector;
pub(crate) mod shares;
pub(crate) mod taint;
pub(crate) mod volume;
pub(crate) mod waiting;
