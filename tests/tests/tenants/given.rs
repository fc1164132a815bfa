//! Quotas, defaults, levels and owners that a Tenant gives to its namespaces, on the real API server and its quota controller.

mod life;
mod namespaces;
mod shared;

use croft_testkit::{Component, Options};
use croft_tests::arena::kept_arena;

#[tokio::test]
async fn objects_follow_their_tenant_and_200_creators_stay_within_its_quota() {
    let options = Options::default().without(Component::Scheduler).without(Component::Kubelets);
    let (plane, mut croft) = kept_arena(options).await.unwrap();
    let admin = plane.admin().await.unwrap();
    life::begin(&plane, &admin).await;
    life::repaired(&plane, &admin).await;
    life::refused(&plane, &admin).await;
    life::end_of_fields(&plane, &admin).await;
    // The absence of the deleted Tenant is confirmed while the others work.
    let begun = tokio::time::Instant::now();
    life::delete_tenant(&plane, &admin).await;
    shared::creators(&plane, &admin).await;
    life::end_of_tenant(&admin, begun).await;
    croft.check().unwrap();
}

#[tokio::test]
async fn owners_create_namespaces_under_their_prefix_and_no_more_than_their_maximum() {
    let options = Options::default().without(Component::Scheduler).without(Component::Kubelets);
    let (plane, mut croft) = kept_arena(options).await.unwrap();
    let admin = plane.admin().await.unwrap();
    namespaces::names_and_labels(&plane, &admin).await;
    namespaces::first(&plane, &admin).await;
    namespaces::concurrent(&plane, &admin).await;
    namespaces::end(&plane, &admin).await;
    croft.check().unwrap();
}
