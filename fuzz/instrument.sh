#!/bin/sh
# The compiler of the workspace's own crates under `make fuzz` (RUSTC_WORKSPACE_WRAPPER): with a counter on every branch.
# All flags are the stable compiler's.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters "-Clink-arg=$CROFT_SANCOV"
