# The cost of admission, and its behaviour on invalid input.

.PHONY: bench-webhook
bench-webhook: lab ## capacity, latency and memory of admission, next to a floor and the API server's own policies; PARTS="capacity latency size"
	cargo bench --package croft-webhook --bench webhook -- $(PARTS)

FUZZ := $(abspath $(or $(CARGO_TARGET_DIR),target))/fuzz

# In a folder of its own: the counters are in every crate of the workspace, and in nothing else.
.PHONY: fuzz
fuzz: needs-rust needs-cc ## invalid and unusual inputs, guided by branches, each target for SECONDS (20); KEEP=1 keeps what is new
	@mkdir -p $(FUZZ)
	cc -c -O2 -o $(FUZZ)/sancov.o fuzz/sancov.c
	CROFT_SANCOV=$(FUZZ)/sancov.o RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/fuzz/instrument.sh \
		cargo run --quiet --profile fuzz --target-dir $(FUZZ) --package croft-fuzz -- \
		--seconds $(or $(SECONDS),20) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep)
