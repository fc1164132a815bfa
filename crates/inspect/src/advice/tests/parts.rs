//! Parts of pools.

use std::fmt::Write as _;

use croft_manifest::{LoadOptions, parse};

use crate::advice::parts::Parts;

#[test]
fn pools_are_in_one_part_if_tenants_use_them_together_directly_or_over_others() {
    let mut text = String::new();
    for pool in ["p1", "p2", "p3", "p4", "p5"] {
        write!(text, "---\napiVersion: croft.dev/v1alpha1\nkind: TenantPool\nmetadata: {{name: {pool}}}\nspec: {{provisioner: None}}\n").unwrap();
    }
    for (tenant, pools) in [("a", "p2, p5"), ("b", "p1"), ("c", "p5, p3, missing")] {
        write!(text, "---\napiVersion: croft.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: {tenant}}}\nspec: {{namespaces: [{tenant}], pools: [{pools}]}}\n").unwrap();
    }
    let parts = Parts::new(&parse("pools.yaml", &text, &LoadOptions::default()).unwrap());
    let pools = |pool: &str| parts.pools(parts.of(pool)).into_iter().collect::<Vec<_>>();
    assert_eq!(pools("p2"), ["p2", "p3", "p5"]);
    assert_eq!((pools("p3"), pools("p5")), (pools("p2"), pools("p2")));
    assert_eq!((pools("p1"), pools("p4")), (vec!["p1".to_owned()], vec!["p4".to_owned()]));
    assert_eq!(parts.of("missing"), None);
    assert_eq!(parts.pools(None).len(), 5);
}
