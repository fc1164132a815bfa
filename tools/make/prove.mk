# The exhaustive search for a way in: designs/proved-isolation.md.

.PHONY: prove
prove: needs-rust ## no order of events binds a pod to a node that it may not use: prints the states, and what was found, shortest first
	cargo test --workspace --test prove -- --include-ignored --nocapture --test-threads 1
