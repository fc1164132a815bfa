//! Roles that Croft's controller gives: to owners, as their Tenant declares them, and to no other user.
//!
//! A stolen token of the controller has the same rights, and whatever a policy of the API server could compare a binding
//! with, that token may write, too. Only the webhook's own watch of Tenants is independent of it.

use crate::{
    definitions::{NAMESPACE_CREATOR_ROLE, Rule},
    denial::Denial,
    outcome::Outcome,
    request::{
        review::Request,
        view::{RoleBinding, RoleSubject},
    },
    tenancy::{
        index::{NamespaceTenancy, Tenants},
        model::Subject,
    },
};

/// Evaluates a binding that Croft's controller writes. Those of other users are their own business.
pub(crate) fn evaluate<'t>(
    tenants: &'t Tenants,
    request: &Request<'_>,
    binding: &RoleBinding<'_>,
) -> Outcome<'t> {
    if request.user.username != *tenants.declarations().controller_user() {
        return Outcome::allow(Rule::NotApplicable);
    }
    let namespace = request.namespace.as_str();
    if namespace.is_empty() {
        return Outcome::from_check(check_in_cluster(tenants, binding), Rule::DeclaredOwners);
    }
    let tenancy = tenants.tenancy(namespace);
    let checked = check_in_namespace(tenancy, namespace, binding);
    Outcome::from_check(checked, Rule::DeclaredOwners).in_namespace(tenancy)
}

/// Each subject owns the tenant of the namespace, with this role.
fn check_in_namespace(
    tenancy: NamespaceTenancy<'_>,
    namespace: &str,
    binding: &RoleBinding<'_>,
) -> Result<(), Denial> {
    if matches!(tenancy, NamespaceTenancy::Unknown) {
        return Err(Denial::unknown_namespace(namespace));
    }
    let role = &*binding.role_ref.name;
    check(namespace, binding, |subject| {
        binding.role_ref.kind == "ClusterRole"
            && tenancy.tenant().is_some_and(|tenant| tenant.is_owned_by(subject, Some(role)))
    })
}

/// Each subject owns a tenant whose owners may create namespaces.
fn check_in_cluster(tenants: &Tenants, binding: &RoleBinding<'_>) -> Result<(), Denial> {
    let is_creators =
        binding.role_ref.kind == "ClusterRole" && binding.role_ref.name == NAMESPACE_CREATOR_ROLE;
    let creators = || tenants.declarations().tenants().iter().filter(|tenant| tenant.creation().is_some());
    check("", binding, |subject| is_creators && creators().any(|tenant| tenant.is_owned_by(subject, None)))
}

fn check(
    namespace: &str,
    binding: &RoleBinding<'_>,
    is_declared: impl Fn(&Subject) -> bool,
) -> Result<(), Denial> {
    let is_undeclared = |subject: &&RoleSubject<'_>| {
        let known = Subject::new(&subject.kind, &subject.name, &subject.namespace);
        !known.is_some_and(|subject| is_declared(&subject))
    };
    let Some(RoleSubject { kind, name, namespace: within }) = binding.subjects.iter().find(is_undeclared)
    else {
        return Ok(());
    };
    let slash = if within.is_empty() { "" } else { "/" };
    let role = format!("{} {}", binding.role_ref.kind, binding.role_ref.name);
    Err(Denial::undeclared_role(namespace, &role, &format!("{kind} {within}{slash}{name}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        Index, Namespace, NamespaceCreation, Owner, Phase, Rule, Subject, Tenant, Tenants, evaluate, review,
    };

    const CONTROLLER: &str = "system:serviceaccount:croft-system:croft-controller";

    fn owner(kind: &str, name: &str, namespace: &str, roles: &[&str]) -> Owner {
        Owner {
            subject: Subject::new(kind, name, namespace).unwrap(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        }
    }

    fn tenants() -> Tenants {
        let shop = Tenant {
            name: "shop".to_owned(),
            namespaces: vec!["shop".to_owned()],
            owners: vec![
                owner("User", "jane", "", &["admin"]),
                owner("Group", "shop", "", &["view"]),
                owner("ServiceAccount", "ci", "build", &["admin", "edit"]),
            ],
            creation: Some(NamespaceCreation { prefix: "shop-".to_owned(), maximum: 2 }),
            ..Tenant::default()
        };
        let pay = Tenant {
            name: "pay".to_owned(),
            namespaces: vec!["pay".to_owned()],
            owners: vec![owner("User", "paul", "", &["admin"])],
            ..Tenant::default()
        };
        let held = ["shop", "pay", "free", "kube-system"]
            .map(|name| Namespace { name: name.to_owned(), ..Namespace::default() });
        let mut index = Index::new();
        index.upsert_tenant(shop);
        index.upsert_tenant(pay);
        for namespace in &held {
            index.upsert_namespace(namespace);
        }
        index.snapshot()
    }

    fn rule(by: &str, namespace: &str, role: (&str, &str), subjects: Value) -> Rule {
        let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": kind},
            "namespace": namespace, "operation": "CREATE", "userInfo": {"username": by},
            "object": {"kind": kind, "roleRef": {"kind": role.0, "name": role.1}, "subjects": subjects}}});
        let body = body.to_string();
        evaluate(&tenants(), &review::parse(body.as_bytes()).unwrap(), Phase::Validate).rule
    }

    #[test]
    fn the_controller_binds_owners_to_the_roles_of_their_tenant_and_no_other() {
        let jane = json!([{"kind": "User", "name": "jane"}]);
        let of = |kind: &str, name: &str| json!([{"kind": kind, "name": name}]);
        let account = json!([{"kind": "ServiceAccount", "name": "ci", "namespace": "build"}]);
        let (admin, creator) = (("ClusterRole", "admin"), ("ClusterRole", "croft-namespace-creator"));
        for (namespace, role, subjects, allowed) in [
            ("shop", admin, jane.clone(), true),
            ("shop", admin, json!(null), true),
            ("shop", ("ClusterRole", "view"), of("Group", "shop"), true),
            ("shop", ("ClusterRole", "edit"), account.clone(), true),
            // The same account in another spelling is the same user.
            ("shop", admin, of("User", "system:serviceaccount:build:ci"), true),
            (
                "shop",
                admin,
                json!([{"kind": "User", "name": "jane"}, {"kind": "User", "name": "eve"}]),
                false,
            ),
            ("shop", admin, of("User", "eve"), false),
            ("shop", admin, of("Group", "jane"), false),
            ("shop", admin, of("Group", "shop"), false),
            ("shop", ("ClusterRole", "edit"), jane.clone(), false),
            ("shop", ("Role", "admin"), jane.clone(), false),
            ("shop", ("ClusterRole", "view"), of("Group", "system:authenticated"), false),
            ("shop", admin, of("User", CONTROLLER), false),
            ("shop", admin, of("Robot", "jane"), false),
            ("pay", admin, jane.clone(), false),
            ("free", admin, jane.clone(), false),
            ("kube-system", admin, jane.clone(), false),
            ("", creator, jane.clone(), true),
            ("", creator, account, true),
            ("", admin, jane.clone(), false),
            ("", creator, of("User", "paul"), false),
        ] {
            let expected = if allowed { Rule::DeclaredOwners } else { Rule::UndeclaredRole };
            assert_eq!(
                rule(CONTROLLER, namespace, role, subjects.clone()),
                expected,
                "{namespace} {role:?} {subjects}"
            );
        }
        assert_eq!(rule(CONTROLLER, "new", admin, jane), Rule::UnknownNamespace);
        assert_eq!(rule("root", "shop", admin, of("User", "eve")), Rule::NotApplicable);
    }
}
