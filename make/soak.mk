# The controller: its simulation at length. Optimised, since the runs take longer than the build.

SOAK := cargo test -p croft-controller --no-default-features --release --test simulation

.PHONY: soak
soak: needs-rust needs-cc ## 10,000 seeded runs of the controller on virtual time, with everything failing, and a death at every moment
	@mkdir -p target
	@$(SOAK) --no-run --quiet
	@CROFT_SIM_POINTS=1 $(SOAK) --quiet -- --nocapture crashes > target/crashes.log 2>&1; status=$$?; \
		grep -E '^crashes:' target/crashes.log || tail -50 target/crashes.log; exit $$status
	@CROFT_SIM_RUNS=$(or $(RUNS),10000) $(SOAK) --quiet -- --nocapture nothing_is_lost > target/soak.log 2>&1; status=$$?; \
		grep -E '^seed ' target/soak.log; grep -E '^soak:' target/soak.log; exit $$status
