//! Answers an AdmissionReview for a pod of a tenant: the policy as a library.

use croft_policy::{
    Config, NodeTemplate, Phase, Pool, PoolTenants, Provisioner, Tenant, Tenants, evaluate, review,
    taint::Effects,
};

fn main() -> Result<(), review::ReviewError> {
    let pool = Pool {
        name: "gpu".to_owned(),
        created: None,
        key: "example.com/pool".to_owned(),
        value: "gpu".to_owned(),
        effects: Effects::NONE,
        shared_with: Vec::new(),
        provisioner: Provisioner::Croft,
        template: NodeTemplate::default(),
        tenants: PoolTenants::default(),
    };
    let (namespaces, pools) = (vec!["acme".to_owned()], vec!["gpu".to_owned()]);
    let tenant = Tenant { name: "acme".to_owned(), namespaces, pools, ..Tenant::default() };
    let tenants = Tenants::offline(Config::default(), vec![tenant], vec![pool], Vec::new(), Vec::new());
    let request = review::parse(
        br#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "acme",
            "operation": "CREATE", "userInfo": {"username": "jane"}, "object": {"spec": {}}}}"#,
    )?;
    let outcome = evaluate(&tenants, &request, Phase::Mutate);
    println!("{:?}: pods of {:?} go to {:?}", outcome.rule, outcome.tenant, outcome.pool);
    Ok(())
}
