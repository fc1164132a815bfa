//! DaemonSets: the record of what Croft added to a template, and its removal: `injected` as CEL.
//!
//! A plan begins with what the tenant wrote. Of what was recorded, the part that is still needed stays in its place.

use crate::{
    definitions::INJECTED_ANNOTATION,
    policies::{
        mutation::{
            choice,
            keep_out::{LACKS, MATCHES_SOME, terms_patches},
            subject::Subject,
        },
        policy::Variable,
    },
};

const DAEMONSET: Subject = Subject::DaemonSet;
/// A key, value or name.
const PART: &str = "[^=:;,]+";

/// The regular expression of a word of a record; see `injected::parse`.
fn word() -> String {
    let index = "(0|[1-9][0-9]{0,5})";
    format!(
        "^(pin:{PART}={PART}|tolerate:{PART}={PART}:(NoSchedule|PreferNoSchedule|NoExecute)|\
         exclude:{PART}:({PART}(,{PART})*)?:({index}(,{index})*)?)$"
    )
}

/// The variables of a template: those of every subject, without what is recorded.
pub(super) fn of_template() -> Vec<Variable> {
    let of = |kind: &str| format!("variables.written.filter(w, w.startsWith('{kind}:'))");
    let mut variables = vec![
        ("record", DAEMONSET.record()),
        ("written", "variables.record.split(';').filter(w, w != '')".to_owned()),
        (
            "recorded",
            format!(
                "variables.written.all(w, w.matches('{}')) && size({}) <= 1 && size({tolerations}) <= 3 && \
                 {tolerations}.all(t, {tolerations}.exists_one(o, o == t)) && \
                 {exclusions}.all(e, {exclusions}.exists_one(o, o.split(':')[1] == e.split(':')[1])) ? \
                 variables.written : []",
                word(),
                of("pin"),
                tolerations = of("tolerate"),
                exclusions = of("exclude"),
            ),
        ),
    ];
    variables.extend(without("variables.recorded", ["selector", "tolerations", "hasTerms", "terms"]));
    variables.extend([DAEMONSET.containers(), DAEMONSET.annotated()]);
    variables
}

/// The variables of these names: selector, tolerations, whether there are required terms, and the terms, all without
/// what `words` records.
fn without(words: &str, names: [&'static str; 4]) -> Vec<Variable> {
    let [selector, tolerations, has_terms, terms] = names;
    let of_tolerations =
        format!("{}.transformList(i, t, !{}, t)", DAEMONSET.tolerations(), is_added_toleration(words));
    let all = DAEMONSET.terms();
    let ours = is_ours(words);
    // Croft added the whole affinity: it never adds a term beside the tenant's.
    let whole = format!("size({all}) == 1 && ['0'].exists(i, {all}.all(t, {}))", is_only_ours(words));
    vec![
        (
            selector,
            format!("{}.transformMap(k, v, !(('pin:' + k + '=' + v) in {words}), v)", DAEMONSET.selector()),
        ),
        (tolerations, of_tolerations),
        (has_terms, format!("{} && !({whole})", DAEMONSET.has_terms())),
        (
            terms,
            format!(
                "{whole} ? [] : {all}.transformList(n, t, [string(n)].exists(i, {only} || \
                 !t.?matchExpressions.orValue([]).exists(e, {ours})) ? dyn(t) : [string(n)].map(i, dyn({{\
                 ?'matchFields': t.?matchFields, \
                 'matchExpressions': dyn(t.matchExpressions.filter(e, !({ours})))}}))[0])",
                only = is_only_ours(words),
            ),
        ),
    ]
}

/// CEL: `words` record the toleration `t`, whose index is `i`. Of equal ones the first counts.
fn is_added_toleration(words: &str) -> String {
    format!(
        "(t.?operator.orValue('') == 'Equal' && !has(t.tolerationSeconds) && \
         ('tolerate:' + t.?key.orValue('') + '=' + t.?value.orValue('') + ':' + t.?effect.orValue('')) in {words} && \
         {}.indexOf(t) == i)",
        DAEMONSET.tolerations()
    )
}

/// CEL: `words` record the expression `e` of the term whose index is the text `i`.
fn is_ours(words: &str) -> String {
    let values = "e.?values.orValue([])";
    format!(
        "e.operator == (size({values}) == 0 ? 'DoesNotExist' : 'NotIn') && \
         ['exclude:' + e.key + ':' + {values}.join(',') + ':'].exists(s, {words}.exists(w, w == s || \
         (w.startsWith(s) && i in w.split(':')[3].split(','))))"
    )
}

/// CEL: `words` record all of the term `t`, whose index is the text `i`.
fn is_only_ours(words: &str) -> String {
    format!(
        "(size(t.?matchFields.orValue([])) == 0 && size(t.?matchExpressions.orValue([])) > 0 && \
         t.matchExpressions.all(e, {}))",
        is_ours(words)
    )
}

/// The variables of the plan: its words, what of the record is outdated, the template without that, and what it becomes.
pub(super) fn plan() -> Vec<Variable> {
    let lacking = format!("variables.terms.transformList(i, t, {MATCHES_SOME} && {LACKS}, string(i))");
    let excluded = format!(
        "variables.exclusions.filter(x, !variables.hasTerms || size({lacking}) > 0).map(x, 'exclude:' + x[0] + ':' + x[1] + \
         ':' + (!variables.hasTerms || size({lacking}) == size(variables.terms.filter(t, {MATCHES_SOME})) ? '' : \
         {lacking}.join(',')))"
    );
    let mut variables = vec![
        ("words", format!("variables.tenancy == 'tenant' ? {} : {excluded}", choice::words())),
        ("outdated", "variables.recorded.filter(w, !(w in variables.words))".to_owned()),
    ];
    variables
        .extend(without("variables.outdated", ["keptSelector", "keptTolerations", "hasKept", "keptTerms"]));
    variables.extend(choice::tolerated("variables.keptTolerations"));
    variables
}

/// CEL: the patches of a template. What is outdated is removed first, so that what is added counts from what is kept.
pub(super) fn patches() -> String {
    format!(
        "variables.refusal != '' ? [] : {} + {} + (variables.tenancy == 'tenant' ? {} + {} : []) + {} + {} + {}",
        selector_removals(),
        toleration_removals(),
        choice::selector_patches(DAEMONSET, "variables.keptSelector"),
        choice::toleration_patches(DAEMONSET),
        expression_removals(),
        terms_patches(DAEMONSET, "variables.hasKept", "variables.keptTerms"),
        record_patch(),
    )
}

/// CEL: the patches that remove the selector's entries that are outdated.
fn selector_removals() -> String {
    format!(
        "variables.outdated.filter(w, w.startsWith('pin:')).map(w, w.split(':')[1]).filter(l, \
         {}[?l.split('=')[0]] == optional.of(l.split('=')[1])).map(l, JSONPatch{{op: 'remove', \
         path: '{}/nodeSelector/' + jsonpatch.escapeKey(l.split('=')[0])}})",
        DAEMONSET.selector(),
        DAEMONSET.pointer()
    )
}

/// CEL: the patches that remove the tolerations that are outdated, the last one first.
fn toleration_removals() -> String {
    format!(
        "{}.transformList(i, t, {}, i).reverse().map(i, JSONPatch{{op: 'remove', path: '{}/tolerations/' + string(i)}})",
        DAEMONSET.tolerations(),
        is_added_toleration("variables.outdated"),
        DAEMONSET.pointer()
    )
}

/// CEL: the patches that remove the expressions that are outdated from terms that are kept, the last one first.
fn expression_removals() -> String {
    let words = "variables.outdated";
    format!(
        "(!variables.hasKept ? [] : {terms}.transformList(n, t, [string(n)].all(i, !{only}), [string(n)].map(i, \
         t.?matchExpressions.orValue([]).transformList(j, e, {ours}, j).reverse().map(j, JSONPatch{{op: 'remove', \
         path: {at} + '/' + string(j)}}))[0]).flatten())",
        terms = DAEMONSET.terms(),
        only = is_only_ours(words),
        ours = is_ours(words),
        at = DAEMONSET.expressions("n"),
    )
}

/// CEL: the patch of the record.
fn record_patch() -> String {
    let key = INJECTED_ANNOTATION;
    let text = "variables.words.join(';')";
    let annotations = "/spec/template/metadata/annotations";
    let entry = format!("'{annotations}/' + jsonpatch.escapeKey('{key}')");
    let there = format!("object.spec.template.?metadata.?annotations[?'{key}'].hasValue()");
    format!(
        "({there} && {text} == '' ? [JSONPatch{{op: 'remove', path: {entry}}}] : variables.record == {text} ? [] : \
         size(object.spec.template.?metadata.?annotations.orValue({{}})) > 0 ? \
         [JSONPatch{{op: 'add', path: {entry}, value: {text}}}] : \
         [JSONPatch{{op: 'add', path: '{annotations}', value: {{'{key}': {text}}}}}])"
    )
}
