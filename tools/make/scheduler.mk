# The scheduler's figures and its proof by the real kube-scheduler.

.PHONY: bench-scheduler
bench-scheduler: ## workloads A to E of the scheduler, with one line for programs; DUMP=folder writes inputs and plans
	@mkdir -p target/bench
	cargo build --quiet --workspace --example catalog
	$(or $(CARGO_TARGET_DIR),target)/debug/examples/catalog > target/bench/catalog.json
	cargo bench --quiet -p croft-scheduler --bench scheduler -- --catalog $(CURDIR)/target/bench/catalog.json $(if $(DUMP),--dump $(abspath $(DUMP)))

# Control planes at the same time: one takes about a quarter of two cores. Seeds move with the date; a failing one is printed.
.PHONY: oracle
oracle: ORACLE_CLUSTERS ?= 3000
oracle: ORACLE_PLANES ?= 3
oracle: ORACLE_SEED ?= $(shell expr $$(date +%s) / 86400 '*' 100000)
oracle: lab ## random clusters, planned by Croft and bound by the real kube-scheduler; ORACLE_CLUSTERS of them from ORACLE_SEED, on ORACLE_PLANES control planes
	@echo "oracle: seeds from $(ORACLE_SEED)"
	ORACLE_SEED=$(ORACLE_SEED) ORACLE_CLUSTERS=$(ORACLE_CLUSTERS) ORACLE_PLANES=$(ORACLE_PLANES) cargo test --workspace --test oracle -- --nocapture
