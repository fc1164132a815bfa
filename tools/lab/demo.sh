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

# run PHASE COUNTED COMMAND...: runs a command with its output in the log, and every ten seconds says how many lines of it
# begin as COUNTED. A failure shows the end of the log.
run() {
    phase=$1 counted=$2
    shift 2
    : >"$log"
    "$@" >>"$log" 2>&1 &
    child=$!
    trap 'kill "$child" 2>/dev/null || true; exit 130' INT TERM
    ticks=0
    while kill -0 "$child" 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        if [ $((ticks % 10)) -eq 0 ]; then
            steps=$(grep -c "$counted" "$log" || true)
            last=$(grep "$counted" "$log" | tail -n 1 | sed -e 's/^ *//' -e 's/ (.*//' || true)
            say "$phase: $steps steps so far; $last"
        fi
    done
    trap - INT TERM
    if ! wait "$child"; then
        tail -n 30 "$log" >&2
        say "$phase failed; the whole output is in $log"
        exit 1
    fi
    steps=$(grep -c "$counted" "$log" || true)
    if [ "$steps" -eq 0 ]; then say "$phase: cached"; else say "$phase: done"; fi
}

say "1 of 2, the control plane (some minutes, once)"
run "control plane" '^lab: [a-z]' tools/lab/build.sh
say "2 of 2, Croft and the simulated EC2 (some minutes, once)"
run "Croft" '^ *Compiling' cargo build --bin croft --bin croft-webhook --bin croft-controller --bin croft-page --bin ec2-sim
exec "$target/debug/croft" lab demo
