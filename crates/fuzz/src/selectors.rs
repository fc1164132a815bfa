//! Selectors of Tenants: the parts that are read, and the owner of a namespace that the index finds by them.

use std::collections::BTreeMap;

use croft_api::convert::policy as convert;
use croft_policy::{Config, Namespace, NamespaceTenancy, Tenant, Tenants};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

/// Selectors, the older tenant's first, and the labels of a namespace.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    selectors: Vec<LabelSelector>,
    labels: BTreeMap<String, String>,
}

/// Matches a selector by the words of the API's documentation. `None` if an operator isn't one.
fn plainly(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> Option<bool> {
    let mut holds = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    for expression in selector.match_expressions.iter().flatten() {
        let label = labels.get(&expression.key);
        let listed = label.is_some_and(|value| expression.values.iter().flatten().any(|v| v == value));
        holds &= match expression.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => return None,
        };
    }
    Some(holds)
}

/// A selector is read or refused; what is read selects what the API says, and the index finds the oldest tenant that
/// selects a namespace, whichever way it looks.
pub(crate) fn selector(input: &[u8]) -> Result<String, String> {
    let input: Input = match serde_json::from_slice(input) {
        Ok(input) => input,
        Err(error) => {
            return Ok(error.to_string().chars().filter(|c| !c.is_ascii_digit()).take(40).collect());
        }
    };
    let label = |key: &str| input.labels.get(key).map(String::as_str);
    let mut tenants = Vec::new();
    let mut first = None;
    let mut signature = String::new();
    for (at, selector) in input.selectors.iter().take(16).enumerate() {
        let plain = plainly(selector, &input.labels);
        let read = convert::selector(selector);
        match (&read, plain) {
            (Ok(read), Some(plain)) => {
                if read.matches(label) != plain {
                    return Err(format!("{selector:?} should be {plain} of {:?}", input.labels));
                }
                if let (true, Some((key, values))) = (plain, read.anchor())
                    && !label(key).is_some_and(|value| values.iter().any(|v| v == value))
                {
                    return Err(format!("{selector:?} matches without its anchor {key}"));
                }
                let kinds: String = read
                    .requirements()
                    .iter()
                    .take(4)
                    .map(|r| format!("{:?}", r.test).chars().next().unwrap_or('-'))
                    .collect();
                signature.push_str(&format!("{kinds}{plain}|"));
                // An empty one would claim every namespace there is, and so claims none.
                let counts = !read.requirements().is_empty();
                if counts && plain && first.is_none() {
                    first = Some(at);
                }
                tenants.push(Tenant {
                    name: format!("t{at:02}"),
                    created: i64::try_from(at).ok(),
                    selector: counts.then(|| read.clone()),
                    ..Tenant::default()
                });
            }
            (Err(_), None) => signature.push('?'),
            _ => return Err(format!("{selector:?} was read as {read:?}, and should have been {plain:?}")),
        }
    }
    let namespace = Namespace { name: "n".to_owned(), labels: input.labels.clone(), ..Namespace::default() };
    let view = Tenants::offline(Config::default(), tenants, Vec::new(), vec![namespace], Vec::new());
    let owner = match view.tenancy("n") {
        NamespaceTenancy::Tenant { tenant, .. } => Some(tenant.name.to_string()),
        _ => None,
    };
    if owner != first.map(|at| format!("t{at:02}")) {
        return Err(format!("owned by {owner:?}, and should be by {first:?}"));
    }
    Ok(format!("{signature}{owner:?}"))
}
