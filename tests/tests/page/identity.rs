//! The rights of the page's identity, by the API server's own answers.

use std::collections::BTreeSet;

use croft_testkit::{ControlPlane, Croft, CroftOptions, Options};
use croft_tests::audit::{PAGE_USER, Request};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::{ClusterRole, Role},
};
use kube::{
    Api, Client,
    api::PostParams,
    discovery::{Discovery, Scope},
};

const NAMESPACE: &str = "croft-system";
/// Groups of the page's tokens.
const GROUPS: [&str; 3] =
    ["system:serviceaccounts", "system:serviceaccounts:croft-system", "system:authenticated"];
/// A verb that no request has, such as `escalate`, is asked for too.
const WRITES: [&str; 11] = [
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
    "use",
];
const READS: [&str; 3] = ["get", "list", "watch"];
/// Creating these stores nothing: reviews that the page needs, and those of itself, which every user may ask for.
const REVIEWS: [&str; 5] = [
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "selfsubjectreviews",
];

async fn may(admin: &Client, asked: ResourceAttributes) -> bool {
    let spec = SubjectAccessReviewSpec {
        user: Some(PAGE_USER.to_owned()),
        groups: Some(GROUPS.map(str::to_owned).to_vec()),
        resource_attributes: Some(asked),
        ..SubjectAccessReviewSpec::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(admin.clone());
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

/// Each resource and subresource that the API server serves: group, name, and true if it is in namespaces.
async fn resources(admin: &Client) -> Vec<(String, String, bool)> {
    let discovery = Discovery::new(admin.clone()).run().await.unwrap();
    let mut all = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let is_namespaced = capabilities.scope == Scope::Namespaced;
            all.push((resource.group.clone(), resource.plural.clone(), is_namespaced));
            for (subresource, _) in &capabilities.subresources {
                let name = format!("{}/{}", resource.plural, subresource.plural);
                all.push((resource.group.clone(), name, is_namespaced));
            }
        }
    }
    all
}

#[tokio::test]
async fn the_pages_identity_may_write_nothing_and_read_no_secret() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let _croft = Croft::install(&plane, CroftOptions::find().unwrap().page()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let resources = resources(&admin).await;
    assert!(resources.len() > 60, "{resources:?}");
    let mut asked = Vec::new();
    for (group, resource, is_namespaced) in &resources {
        let namespaces = if *is_namespaced { vec!["", NAMESPACE, "default"] } else { vec![""] };
        for namespace in namespaces {
            asked.extend(WRITES.iter().chain(&READS).map(|verb| ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.split('/').next().unwrap().to_owned()),
                subresource: resource.split_once('/').map(|(_, name)| name.to_owned()),
                namespace: Some(namespace.to_owned()).filter(|name| !name.is_empty()),
                verb: Some((*verb).to_owned()),
                ..ResourceAttributes::default()
            }));
        }
    }
    let count = asked.len();
    let granted: Vec<ResourceAttributes> = stream::iter(asked)
        .map(async |one| (may(&admin, one.clone()).await, one))
        .buffer_unordered(16)
        .filter_map(async |(may, one)| may.then_some(one))
        .collect()
        .await;
    assert!(granted.len() > 30 && granted.len() < count / 8, "{} of {count}", granted.len());
    for one in granted {
        let (verb, resource) = (one.verb.as_deref().unwrap(), one.resource.as_deref().unwrap());
        assert_ne!(resource, "secrets", "{one:?}");
        let is_review = verb == "create" && REVIEWS.contains(&resource);
        let is_read = matches!(verb, "list" | "watch") && one.subresource.is_none();
        assert!(is_review || is_read, "{one:?}");
        if resource == "configmaps" {
            assert_eq!(one.namespace.as_deref(), Some(NAMESPACE), "the decision log alone: {one:?}");
        }
    }
}

/// Each verb that the manifests grant to the page is one that it uses, and it tries no other.
pub(crate) async fn uses_what_is_granted(admin: &Client, requests: &[Request]) {
    let role = Api::<ClusterRole>::all(admin.clone()).get("croft-page").await.unwrap();
    let own = Api::<Role>::namespaced(admin.clone(), NAMESPACE).get("croft-page").await.unwrap();
    let mut granted = BTreeSet::new();
    for rule in role.rules.into_iter().chain(own.rules).flatten() {
        for (group, resource) in rule.api_groups.iter().flatten().flat_map(|group| {
            rule.resources.iter().flatten().map(move |resource| (group.clone(), resource.clone()))
        }) {
            granted.extend(rule.verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
        }
    }
    let used = requests.iter().map(|one| (one.group.clone(), one.resource.clone(), one.verb.clone()));
    assert_eq!(used.collect::<BTreeSet<_>>(), granted);
    let refused: Vec<&Request> = requests.iter().filter(|one| one.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
}
