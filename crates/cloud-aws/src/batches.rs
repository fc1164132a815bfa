//! Calls that are merged: one request for many claims or instances.

use std::sync::Arc;

use croft_cloud::{Fault, InstanceState};

use crate::{
    batch::Batch,
    instances::{self, DescribedInstance, Each},
};

/// Calls that are merged.
#[derive(Debug)]
pub(crate) struct Batches {
    pub(crate) of_claims: Batch<String, Result<Arc<Vec<DescribedInstance>>, Fault>>,
    pub(crate) by_id: Batch<String, Result<Arc<Vec<DescribedInstance>>, Fault>>,
    pub(crate) terminate: Batch<String, Arc<Each<InstanceState>>>,
    pub(crate) tag: Batch<instances::Tagged, Arc<Each<()>>>,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            of_claims: Batch::new(instances::FILTER_VALUES),
            by_id: Batch::new(instances::FILTER_VALUES),
            // EC2 accepts a thousand and recommends few.
            terminate: Batch::new(100),
            tag: Batch::new(100),
        }
    }
}
