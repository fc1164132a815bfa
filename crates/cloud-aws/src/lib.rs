//! Croft's CloudProvider for Amazon EC2, through the AWS SDK. Only this crate names `aws_*`, and its public API has no
//! type of the SDK.
//!
//! ```text
//!                       provider: AwsProvider  (croft_cloud::CloudProvider)
//!      resolve ▼        instance_types ▼        prepare / launch ▼        list, terminate, tag ▼   interruptions ▼
//!     class             offers                  launch ── template         instances                interruption
//!       │ discovery       │ types, prices         │  ── profile                                      (SQS)
//!       │ profile         │ shortage              │  ── userdata (croft-cloud)
//!       │                 │ observed              │
//!       ▼                 ▼                       ▼
//!     cache   answers kept, and used while AWS is away        pace     a token bucket per kind of call
//!     batch   calls of many claims made as one
//!     codes   every error code, and what to do about it       refusal  from the SDK's errors to Croft's
//! ```

mod answer;
mod batch;
mod batches;
mod cache;
mod class;
mod cloud_provider;
mod codes;
mod connect;
mod discovery;
mod iam;
mod instances;
mod interruption;
mod launch;
mod memory;
mod observed;
mod offers;
mod pace;
mod prices;
mod profile;
mod provider;
mod refusal;
mod template;
mod types;

pub use codes::{CODES, Code};
pub use connect::{Access, Keys};
pub use provider::{AwsProvider, Identity, Options};
