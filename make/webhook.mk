# What admission costs, and how it takes what nobody would send.

.PHONY: bench-webhook
bench-webhook: lab ## capacity, latency and memory of admission, next to a floor and the API server's own policies
	cargo bench --package croft-webhook --bench webhook

.PHONY: fuzz
fuzz: ## inputs that nobody would send, each target for SECONDS (20)
	cargo run --quiet --release --package croft-fuzz -- --seconds $(or $(SECONDS),20)
