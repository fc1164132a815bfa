//! Whether the nodes of a pool could hold a pod: [`NodeTemplate`](crate::NodeTemplate) as CEL, by the text of the template.

use crate::policies::mutation::keep_out::MATCHES_SOME;

/// A number that a label may be compared by.
const NUMBER: &str = "'^-?[0-9]{1,18}$'";

/// CEL: the nodes with the template `text`, a list's element, could hold the pod. A template that isn't there could hold every pod.
pub(super) fn could_hold(text: &str) -> String {
    // A list of one element is a variable: its only element is bound to a name.
    format!(
        "{text} == '' || [{text}.split('|')].exists(n, [n[0].split(' ').filter(w, w != '').map(w, w.split('='))]\
         .exists(labels, {} && {}) && {} && !{})",
        selector("labels"),
        affinity("labels"),
        taints("n[1]"),
        needs_one_of("n[2]")
    )
}

/// CEL: the pool with the template `text` is dedicated to an extended resource that the pod needs.
pub(super) fn is_dedicated(text: &str) -> String {
    format!("{text} != '' && [{text}.split('|')].exists(n, {})", needs_one_of("n[3]"))
}

/// CEL: each label of the selector that is declared can have its value. Keys of foreign pools are dropped from it.
fn selector(labels: &str) -> String {
    let value = "variables.selector[l[0]]";
    format!(
        "{labels}.all(l, !(l[0] in variables.selector) || l[0] in variables.foreign || (l[1] == 'in' && {value} in l[2].split(',')) || \
         (l[1] == 'not' && !({value} in l[2].split(','))))"
    )
}

/// CEL: some term of the required node affinity can hold.
fn affinity(labels: &str) -> String {
    format!(
        "(!variables.hasTerms || variables.terms.exists(t, {MATCHES_SOME} && t.?matchExpressions.orValue([]).all(e, \
         {labels}.all(l, l[0] != e.key || {}))))",
        expression()
    )
}

/// CEL: the label `l` can meet the expression `e`.
fn expression() -> String {
    let (wanted, known) = ("e.?values.orValue([])", "l[2].split(',')");
    let compared = |operator: char| {
        format!(
            "(l[1] == 'not' || (l[1] == 'in' && {wanted}.exists_one(b, true) && {wanted}.all(b, b.matches({NUMBER}) && \
             {known}.exists(v, v.matches({NUMBER}) && int(v) {operator} int(b)))))"
        )
    };
    format!(
        "(e.operator == 'In' ? (l[1] == 'in' && {wanted}.exists(v, v in {known})) || \
         (l[1] == 'not' && {wanted}.exists(v, !(v in {known}))) : \
         e.operator == 'NotIn' ? l[1] != 'in' || {known}.exists(v, !(v in {wanted})) : \
         e.operator == 'Exists' ? l[1] != 'absent' : \
         e.operator == 'DoesNotExist' ? l[1] != 'in' : \
         e.operator == 'Gt' ? {} : e.operator == 'Lt' ? {} : true)",
        compared('>'),
        compared('<')
    )
}

/// CEL: every taint is tolerated. `Lt` and `Gt` tolerate nothing while their feature gate is off.
fn taints(taints: &str) -> String {
    format!(
        "{taints}.split(' ').filter(w, w != '').map(w, w.split('=')).all(x, variables.tolerations.exists(t, \
         t.?effect.orValue('') in ['', x[2]] && t.?key.orValue('') in ['', x[0]] && (t.?operator.orValue('') == 'Exists' || \
         (t.?operator.orValue('') in ['', 'Equal'] && t.?value.orValue('') == x[1]))))"
    )
}

/// CEL: the pod needs one of these extended resources.
fn needs_one_of(resources: &str) -> String {
    let needs = |field: &str| {
        format!(
            "c.?resources.?{field}.orValue({{}}).exists(k, string(c.resources.{field}[k]) != '0' && \
             k in {resources}.split(' '))"
        )
    };
    format!(
        "({resources} != '' && variables.containers.exists(c, {} || {}))",
        needs("requests"),
        needs("limits")
    )
}
