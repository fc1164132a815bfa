# Croft on the real control plane, in figures. As released: unoptimised, Croft would be measured with the compiler's
# laziness on top.

.PHONY: bench-lab
bench-lab: lab ## from pods to Running on nodes of Croft, and what the controller needs, with one line for programs; PARTS="ready bind neighbour steady"; PARTS=steady5000 fills 5,000 nodes
	cargo build --quiet --release --bin croft-webhook --bin croft-controller --bin ec2-sim
	cargo bench --quiet --package croft-tests --bench lab -- $(PARTS)

.PHONY: chaos
chaos: lab ## real processes killed, cut off and frozen, RUNS (30) times each way, from seed SEED
	cargo build --workspace --bins --test chaos
	CROFT_CHAOS_RUNS=$(or $(RUNS),30) $(if $(SEED),CROFT_CHAOS_SEED=$(SEED)) cargo test --workspace --test chaos -- --nocapture --test-threads 1
