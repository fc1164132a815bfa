//! Which tenant owns a namespace, which pools a node is in, and the declarations that decide it.

pub mod created;
pub mod declarations;
pub mod index;
pub(crate) mod interner;
pub mod model;
pub mod node_template;
pub mod replica_status;
pub mod selector;
pub(crate) mod sharded_map;
pub mod stored;
pub mod taint;
