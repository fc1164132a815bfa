# What giving nodes back costs and saves.

.PHONY: bench-disruption
bench-disruption: ## decisions over large clusters, aged clusters, and a month of load, with one machine-readable line
	@mkdir -p target/bench
	cargo run --quiet -p croft-cloud --example catalog > target/bench/catalog.json
	cargo bench --quiet -p croft-scheduler --bench disruption -- --catalog $(CURDIR)/target/bench/catalog.json
