# Every entry point of the project. `make help` lists them.
#
# Caches live outside the clone, keyed by version, and are never needed: a new computer fills them.
CACHE      ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/croft
TOOLS      := $(CACHE)/tools
export CROFT_CACHE := $(CACHE)

NEXTEST_VERSION := 0.9.151
DENY_VERSION    := 0.20.2
NEXTEST := $(TOOLS)/nextest-$(NEXTEST_VERSION)/bin/cargo-nextest
XTASK   := $(or $(CARGO_TARGET_DIR),target)/debug/croft-xtask
DENY    := $(TOOLS)/deny-$(DENY_VERSION)/bin/cargo-deny

# Known vulnerabilities of dependencies: a git repository, which isn't reached from everywhere.
ADVISORIES := https://github.com/RustSec/advisory-db

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 20

include $(wildcard tools/make/*.mk)

# `cargo install` compiles from the registry: prebuilt downloads are not assumed to be reachable. Both tools work for
# seconds, so they are compiled quickly rather than well.
$(NEXTEST) $(DENY): export CARGO_PROFILE_RELEASE_OPT_LEVEL := 0
$(NEXTEST) $(DENY): export CARGO_PROFILE_RELEASE_LTO := off
$(NEXTEST) $(DENY): export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
$(NEXTEST):
	# Without the part that updates it by a download.
	cargo install --locked cargo-nextest --no-default-features --version $(NEXTEST_VERSION) --root $(TOOLS)/nextest-$(NEXTEST_VERSION)
$(DENY):
	cargo install --locked cargo-deny --version $(DENY_VERSION) --root $(TOOLS)/deny-$(DENY_VERSION)

.PHONY: test
test: lab $(NEXTEST) ## every test: unit, property, router, real API server, lab
	# The tests with the programs that they start: apart, what both need would be built twice, with other features.
	cargo build --workspace --bins --tests
	# The laws draw the same worlds every time, so that what fails is what was changed; `make soak` draws others, and many.
	PROPTEST_RNG_SEED=$(or $(SEED),1) $(NEXTEST) nextest run --workspace --no-fail-fast
	cargo test --workspace --doc --quiet

.PHONY: lint
lint: $(DENY) ## formatting, clippy, rustdoc, dependencies, generated files
	cargo fmt --all --check
	$$(tools/helm/build.sh)/helm lint --quiet --strict manifests/chart/croft manifests/chart/croft-crds
	$$(tools/helm/build.sh)/helm lint --quiet --strict manifests/chart/croft-tenant --values manifests/examples/tenants-from-git/teams/shop/values.yaml
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(DENY) --all-features check --hide-inclusion-graph bans licenses sources
	@if GIT_TERMINAL_PROMPT=0 timeout 10 git ls-remote --quiet $(ADVISORIES) HEAD >/dev/null 2>&1; then \
		echo '$(DENY) check advisories'; $(DENY) --all-features check --hide-inclusion-graph advisories; \
	else echo "lint: advisories not checked: $(ADVISORIES) can't be reached"; fi
	# With what the tests need, so that `make lint test` builds each crate once.
	cargo build --quiet --workspace --bins --tests
	$(XTASK) check
	$(XTASK) circles
	$(XTASK) links
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory page-web-check; \
	else echo "lint: page/dist not compared with page/web: npm isn't there"; fi

.PHONY: generate
generate: ## write every generated file anew
	# With one test, and so with the tests' features: nothing is built twice.
	cargo build --quiet --workspace --bins --test fixtures
	$(XTASK) generate
