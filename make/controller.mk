# The controller: its simulation at length. Optimised, since the runs take longer than the build.

.PHONY: soak
soak: needs-rust needs-cc ## 10,000 seeded runs of the controller on virtual time, with everything failing
	@CROFT_SIM_RUNS=$(or $(RUNS),10000) cargo test -p croft-controller --no-default-features --release --test simulation -- --nocapture nothing_is_lost | grep -E '^(seed|soak:|test result)'
