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
//!     health  status checks and scheduled changes    codes   every error code, and what to do about it       refusal  from the SDK's errors to Croft's
//!     transport  requests that don't leave the process, for simulations
//!     calls   to IAM, SSM, EKS and EventBridge, without the SDK's clients for them
//!     bucket  an S3 bucket as an object store
//!     rights  what an identity may do     owned  the cluster's instances     account  what is around the cluster: for the
//!             command line     region  the catalogue of a region, for plans without a cluster
//! ```

mod account;
mod answer;
mod batch;
mod batches;
mod bucket;
mod cache;
mod calls;
mod class;
mod cloud_provider;
mod codes;
mod connect;
mod discovery;
mod health;
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
mod region;
mod rights;
mod template;
mod transport;
mod types;

pub use account::{
    AccountReader, EksCluster, EventRule, FargateProfile, FargateSelector, QueueFacts, Read, Unread,
};
pub use bucket::{BucketError, BucketUrl, open as open_bucket};
pub use codes::{CODES, Code};
pub use connect::{Access, Keys, configured_region};
pub use instances::owned_instances;
pub use provider::{AwsProvider, Identity, Options};
pub use region::{RegionCatalog, region_catalog};
pub use rights::{Right, Rights, Subject, Verdict, check as check_rights};
pub use transport::Transport;
