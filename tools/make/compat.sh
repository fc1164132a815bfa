#!/bin/sh
# Runs the suites below on the control plane of each Kubernetes release in the arguments, such as 1.33, with one line of figures
# each. What a run printed is in target/compat/<release>.log. Called by `make test-compat`.
#
#   NEXTEST   the program cargo-nextest
set -eu

cd "$(dirname "$0")/../.."

suites='admission::policies bypass::pods bypass::templates bypass::churn bypass::later bypass::other_ways_in
    life::two_tenants life::disruption::consolidation oracle cli::preflight'
# Of Policy mode, which needs MutatingAdmissionPolicies in v1.
policy_suites='admission::policy_mode bypass::policy'
policy_since=36

# A filter that selects nothing would pass.
for suite in $suites $policy_suites; do
    path=tests/tests/$(echo "$suite" | sed 's|::|/|g')
    [ -d "$path" ] || [ -f "$path.rs" ] || { echo "tools/make/compat.sh names $suite, which isn't in tests/tests" >&2; exit 1; }
done

# The programs of these suites. The whole workspace, as `make test` has it: with fewer packages, what both need would be built
# twice, with other features.
targets() {
    printf -- --workspace
    for suite in $1; do echo "${suite%%::*}"; done | sort -u | while read -r program; do printf ' --test %s' "$program"; done
}

# Their tests, for nextest: a suite is a module of a program, or the whole of one.
filter() {
    for suite in $1; do
        program=${suite%%::*}
        case $suite in
        *::*) echo "(binary(=$program) & test(/^${suite#*::}::/))" ;;
        *) echo "binary(=$program)" ;;
        esac
    done | paste -sd '|' -
}

module_of() {
    if [ -d "tools/lab/compat/$1" ]; then
        echo "compat/$1"
    elif grep -q "^[[:space:]]k8s.io/kubernetes v$1\." tools/lab/go.mod; then
        echo .
    else
        echo "tools/lab/compat has no module of Kubernetes $1: tools/lab/compat/README.md says how to add one" >&2
        return 1
    fi
}

# The number before a word in the summary of a run; 0 if the summary has none.
count() {
    found=$(sed -n "s/^ *Summary .*[] ]\([0-9][0-9]*\) $1.*/\1/p" "$log" | tail -n 1)
    echo "${found:-0}"
}

# shellcheck disable=SC2046 # the words are arguments
cargo build --quiet --bins $(targets "$suites $policy_suites")
mkdir -p target/compat
status=0
for release in "$@"; do
    module=$(module_of "$release")
    programs=$(tools/lab/build.sh "$module")
    version=$("$programs/kube-apiserver" --version)
    log=target/compat/$release.log
    code=0
    here=$suites
    [ "${release#1.}" -lt "$policy_since" ] || here="$suites $policy_suites"
    # etcd and kwok are not among the programs of the module, so they are those of the lab.
    # shellcheck disable=SC2046
    KUBEBUILDER_ASSETS=$programs "$NEXTEST" nextest run $(targets "$here") -E "$(filter "$here")" --no-fail-fast --color never >"$log" 2>&1 || code=$?
    run=$(count 'tests\{0,1\} run:') passed=$(count passed)
    echo "compat: version=${version#Kubernetes v} passed=$passed failed=$((run - passed))"
    if [ "$code" != 0 ] || [ "$passed" = 0 ]; then
        status=1
        grep -E '^ *(FAIL|TIMEOUT|SIG[A-Z]*|error)[ :[]' "$log" | sort -u || tail -n 20 "$log"
    fi
done
exit $status
