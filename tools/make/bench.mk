# Every benchmark, its figures kept and compared.

# Without BASE it takes at most half an hour once built: each program ends after its own limit. With BASE, that commit is
# built in a worktree and both run in turns, three times each.
.PHONY: bench
bench: HISTORY ?= target/bench/history.jsonl
bench: lab browser needs-rust ## every benchmark, a line of figures for each in HISTORY (target/bench/history.jsonl); BASE=commit fails if a median is 10 % worse; BENCHES="scheduler day", RUNS=3
	cargo build --quiet --workspace --bin croft-xtask --test fixtures
	$(XTASK) bench $(if $(BASE),--base $(BASE)) $(if $(RUNS),--runs $(RUNS)) --history $(HISTORY) $(BENCHES)
