# What an operator does on an ordinary day, under a stream of attacks: nothing is let through, and nothing outside tenants changes.

.PHONY: day2
day2: lab needs-rust ## applying again, replacing and restarting, under a stream of attacks
	cargo build --quiet --workspace --bins
	cargo run --quiet -p croft-tests --bin day2
