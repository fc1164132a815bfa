# The cost of admission, and its behaviour on invalid input.

.PHONY: bench-webhook
bench-webhook: lab ## capacity, latency and memory of admission, next to a floor and the API server's own policies; PARTS="capacity latency size"
	cargo bench --bench webhook -- $(PARTS)

FUZZ := $(abspath $(or $(CARGO_TARGET_DIR),target))/fuzz
FUZZ_TARGETS := $(notdir $(wildcard crates/fuzz/corpus/*))
# Counters of branches and comparisons, by passes of the stable compiler. The linker would drop their sections, which only
# the program's own start refers to.
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
	-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Clink-arg=-Wl,-z,nostart-stop-gc
# `--target` keeps the flags away from build scripts.
HOST = $(shell rustc --version --verbose | sed -n 's/^host: //p')

.PHONY: fuzz
fuzz: needs-rust needs-cc ## invalid and unusual inputs by libFuzzer, each target for SECONDS (20); KEEP=1 keeps what is new
	RUSTFLAGS="$(FUZZ_FLAGS)" cargo build --quiet --profile fuzz --target $(HOST) --target-dir $(FUZZ) --package croft-fuzz --features libfuzzer --bin fuzz
	@status=0; for target in $(FUZZ_TARGETS); do \
		new=$(FUZZ)/corpus/$$target; mkdir -p $$new; kept=crates/fuzz/corpus/$$target; \
		case $$target in review|patch) seeds="$$kept tests/corpus/reviews";; *) seeds=$$kept;; esac; \
		echo "fuzz: $$target, $(or $(SECONDS),20) s"; \
		export CROFT_FUZZ_TARGET=$$target; program=$(FUZZ)/$(HOST)/fuzz/fuzz; \
		$$program $$new $$seeds -seed=$(or $(SEED),1) -max_total_time=$(or $(SECONDS),20) -max_len=65536 \
			-verbosity=0 -print_final_stats=1 -artifact_prefix=crates/fuzz/finding-$$target- || status=1; \
		$(if $(KEEP),$$program -merge=1 -verbosity=0 $$kept $$new;) \
	done; exit $$status

.PHONY: policy-mode
policy-mode: lab ## random pods and DaemonSets (OBJECTS=10000) through the policies and the policy crate, and the attacks in Policy mode
	CROFT_POLICY_OBJECTS=$(or $(OBJECTS),10000) cargo test --workspace --test admission policy_mode:: -- --nocapture
	CROFT_MUTATION=Policy cargo test --workspace --test bypass --test tenants --no-fail-fast -- \
		pods:: templates:: later:: churn:: other_ways_in:: random:: given:: network::
