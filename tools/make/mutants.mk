# Mutation tests: the code that decides who may run where and what ends is changed in one place at a time, and the tests of its
# package must notice. All mutants take days of two cores, so a run takes a sample: the shard K of N, every Nth mutant.
CARGO_MUTANTS_VERSION := 27.1.0
CARGO_MUTANTS := $(TOOLS)/cargo-mutants-$(CARGO_MUTANTS_VERSION)/bin/cargo-mutants
$(CARGO_MUTANTS): export CARGO_PROFILE_RELEASE_OPT_LEVEL := 0
$(CARGO_MUTANTS): export CARGO_PROFILE_RELEASE_LTO := off
$(CARGO_MUTANTS): export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
$(CARGO_MUTANTS):
	cargo install --locked cargo-mutants --version $(CARGO_MUTANTS_VERSION) --root $(TOOLS)/cargo-mutants-$(CARGO_MUTANTS_VERSION)

MUTANTS := $(or $(CARGO_TARGET_DIR),target)/mutants
# Package, files, and which tests run for each.
MUTANTS_policy := -p croft-policy -f 'crates/policy/src/rules/**' -f 'crates/policy/src/tenancy/**' -f crates/policy/src/evaluate.rs
MUTANTS_scheduler := -p croft-scheduler -f 'crates/scheduler/src/existing/**' -f 'crates/scheduler/src/topology/**' -f crates/scheduler/src/demand.rs
MUTANTS_disruption := -p croft-disruption -f 'crates/disruption/src/**'
MUTANTS_controller := -p croft-controller --no-default-features -f 'controller/src/nodeclaim/**' -f controller/src/disruption/budgets.rs -f controller/src/reconcile/breaker.rs
MUTANTS_controller_tests := -- --lib --test decisions --test disruption

# Incremental and without debug information, a mutant is compiled sooner. That a property fails is all that counts, not the
# smallest example.
MUTANTS_ENV := PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0 CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=none

# cargo-mutants ends with 2 if mutants survive and with 3 if some run for ever: the summary counts both.
.PHONY: mutants
mutants: SHARD ?= 0/50
mutants: PARTS ?= policy scheduler disruption controller
mutants: needs-rust needs-cc $(CARGO_MUTANTS) ## a sample of changed code that tests must notice, SHARD=0/50; survivors in target/mutants/*/mutants.out/missed.txt; PARTS="policy scheduler disruption controller"
	cargo build --quiet --workspace --bin croft-xtask --test fixtures
	@mkdir -p $(MUTANTS)
	@$(foreach part,$(PARTS),$(MUTANTS_ENV) $(CARGO_MUTANTS) mutants $(MUTANTS_$(part)) --shard $(SHARD) --sharding round-robin --no-shuffle \
		--output $(MUTANTS)/$(part) $(MUTANTS_$(part)_tests) || { status=$$?; [ $$status -eq 2 ] || [ $$status -eq 3 ] || exit $$status; };)
	$(XTASK) mutants $(foreach part,$(PARTS),$(MUTANTS)/$(part)/mutants.out)
