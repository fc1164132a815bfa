//! The webhook's registration with the API servers: the webhook configurations, and the Lease of each replica.
//!
//! | module | owns |
//! |---|---|
//! | `hooks` | the webhooks of `hooks.yaml`, with address, authority and scope |
//! | `scope` | what depends on the declarations: exempt namespaces, pool keys, schedulers |
//! | `configurations` | reading and writing the webhook configurations |
//! | `reconciler` | the loop of the replica that holds the certificate's Lease |
//! | `replica` | the Lease of one replica |

pub mod configurations;
pub mod hooks;
pub mod reconciler;
pub mod replica;
pub mod scope;
