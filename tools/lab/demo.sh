#!/bin/sh
# Builds what `make demo` runs, says how far it is, and starts the demonstration. What is there already is not built again.
#
#   CARGO_TARGET_DIR   where cargo builds (default: target)
set -eu

cd "$(dirname "$0")/../.."
started=$(date +%s)
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
log=$target/demo-build.log

elapsed() {
    seconds=$(($(date +%s) - started))
    printf '%d:%02d' $((seconds / 60)) $((seconds % 60))
}

say() { echo "demo: $(elapsed)  $*" >&2; }

# run PHASE PROGRESS COMMAND...: runs a command with its output in the log, and every ten seconds says how far it is: what PROGRESS
# prints. A failure shows the end of the log.
run() {
    phase=$1 progress=$2
    shift 2
    : >"$log"
    "$@" >>"$log" 2>&1 &
    child=$!
    trap 'kill "$child" 2>/dev/null || true; exit 130' INT TERM
    ticks=0
    while kill -0 "$child" 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        if [ $((ticks % 10)) -eq 0 ]; then say "$phase: $($progress)"; fi
    done
    trap - INT TERM
    if ! wait "$child"; then
        tail -n 30 "$log" >&2
        say "$phase failed; the whole output is in $log"
        exit 1
    fi
    if [ "$ticks" -lt 10 ]; then say "$phase: there already"; else say "$phase: done"; fi
}

# The programs of tools/lab/build.sh, of which it names each that it builds.
programs=$(grep -c '^build ' tools/lab/build.sh)
of_lab() {
    built=$(grep -c '^lab: [a-z-]*$' "$log" || true)
    last=$(sed -n 's/^lab: \([a-z-]*\)$/\1/p' "$log" | tail -n 1)
    echo "program $built of $programs, ${last:-downloading the sources}"
}

# cargo's own bar, as on a terminal: "Building [==>  ] 123/456: crate, crate".
export CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=200
of_croft() {
    bar=$(tr '\r' '\n' <"$log" | sed -n 's/.*\] \([0-9]*\)\/\([0-9]*\)\(: \(.*\)\)\{0,1\}$/\1 of \2 steps; \4/p' | tail -n 1)
    echo "${bar:-downloading the sources}"
}

say "1 of 2, the control plane, once: 8 minutes on two cores, of which kube-apiserver takes the most"
run "control plane" of_lab tools/lab/build.sh
say "2 of 2, Croft and the simulated EC2: 10 minutes on two cores the first time, of which the client of EC2 takes half"
run "Croft" of_croft cargo build --bin croft --bin croft-webhook --bin croft-controller --bin croft-page --bin ec2-sim
exec "$target/debug/croft" lab demo
