# The real control plane, and the demonstration on top of it.

.PHONY: lab
lab: needs-go ## build the control plane into the cache, once per version (some minutes)
	@tools/lab/build.sh >/dev/null

.PHONY: demo
demo: needs-rust needs-go needs-cc ## two tenants on nodes of their own, from nothing, on this computer
	@exec tools/lab/demo.sh

# In a folder of its own: a croft without AWS would replace the one that tests run.
EXAMPLE := manifests/examples/two-tenants
.PHONY: quick
quick: needs-rust needs-cc ## what admission does to the example and which instances it gets, without Go, cluster or cloud
	cargo build --package croft-cli --bin croft --no-default-features --target-dir $(or $(CARGO_TARGET_DIR),target)/quick
	$(or $(CARGO_TARGET_DIR),target)/quick/debug/croft plan -f $(EXAMPLE)
	$(or $(CARGO_TARGET_DIR),target)/quick/debug/croft simulate -f $(EXAMPLE)

# One sentence each, instead of what the first command that needs them would print.
.PHONY: needs-rust needs-go needs-cc
needs-rust:
	@command -v cargo >/dev/null || { echo "Rust is missing: install it from https://rustup.rs, then run make again." >&2; exit 1; }
needs-go:
	@command -v go >/dev/null || { echo "Go is missing (the control plane is built from source): install it from https://go.dev/dl, then run make again." >&2; exit 1; }
needs-cc:
	@command -v cc >/dev/null || { echo "A C compiler is missing (the TLS library has assembly to build): install gcc or clang, then run make again." >&2; exit 1; }
