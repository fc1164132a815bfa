# An operator's ordinary day. Under a stream of attacks nothing is admitted and nothing outside tenants changes;
# no working pod ends without an eviction, no bad edit is accepted, and everything settles.

.PHONY: day2
day2: lab needs-rust ## an operator's ordinary day, under a stream of attacks; CASE=PolicyModeOutage for one of its cases alone
	cargo build --quiet --workspace --bins --test fixtures
	$(or $(CARGO_TARGET_DIR),target)/debug/day2 $(CASE)
