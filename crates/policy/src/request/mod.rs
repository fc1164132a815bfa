//! The request: the AdmissionReview, and borrowed views of its objects.

pub(crate) mod amounts;
pub mod review;
pub(crate) mod text;
pub mod view;
