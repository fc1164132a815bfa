# The cost and the savings of disruption.

# Three programs, each of which ends with a line of `key=value`: searches over large and aged clusters, a month on virtual
# time, and the curve on the real control plane. What the last one runs links the AWS client, so it is built as `make
# bench-lab` builds it.
#
# CURVE=days plays that many days of the month's load at several points of minSavings, consolidateAfter, evictionCost and
# the age of pods, and prints a table of cost against evictions (target/bench/disruption-curve.txt). It plays as many points
# at a time as there are processors: 17 points of 7 days on two cores take about twice as long as the month. The flags
# `--min-savings`, `--consolidate-after`, `--eviction-cost` and `--age` of the bench `month` play one point.
.PHONY: bench-disruption
bench-disruption: lab ## decisions over large and aged clusters, a month of load, and the lab's curve, with one line for programs; CURVE=7 prints cost against evictions over 7 days
	@mkdir -p target/bench
	cargo build --quiet --workspace --example catalog
	$(or $(CARGO_TARGET_DIR),target)/debug/examples/catalog > target/bench/catalog.json
	cargo bench --quiet -p croft-scheduler --bench disruption -- --catalog $(CURDIR)/target/bench/catalog.json > target/bench/disruption-search.txt || { cat target/bench/disruption-search.txt; exit 1; }
	@cat target/bench/disruption-search.txt
	cargo bench --quiet -p croft-controller --no-default-features --bench month > target/bench/disruption-month.txt || { cat target/bench/disruption-month.txt; exit 1; }
	@cat target/bench/disruption-month.txt
	$(if $(CURVE),cargo bench --quiet -p croft-controller --no-default-features --bench month -- --curve --days $(CURVE) > target/bench/disruption-curve.txt || { cat target/bench/disruption-curve.txt; exit 1; })
	@$(if $(CURVE),cat target/bench/disruption-curve.txt)
	cargo build --quiet --release --bin croft-webhook --bin croft-controller --bin ec2-sim --bin consolidation-curve
	$(or $(CARGO_TARGET_DIR),target)/release/consolidation-curve > target/bench/disruption-lab.txt || { cat target/bench/disruption-lab.txt; exit 1; }
	@cat target/bench/disruption-lab.txt
	@tail -qn 1 target/bench/disruption-search.txt target/bench/disruption-month.txt target/bench/disruption-lab.txt | tr ' ' '\n' | awk -F= ' \
		$$1 == "violations" { violations += $$2; next } NF == 2 { line = line " " $$0 } \
		END { print "bench-disruption:" line " violations=" violations + 0 }'
