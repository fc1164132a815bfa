# Upgrades of Croft: this version on objects that an earlier one stored. `make test` starts it on every recorded release.

UPGRADE := $(abspath $(or $(CARGO_TARGET_DIR),target))/upgrade
UPGRADE_TEST := cargo test --workspace --test upgrade -- --ignored --nocapture --exact

.PHONY: record-release
record-release: lab needs-rust ## what this version stores, for the upgrade test of later ones; once for each release
	cargo build --quiet --workspace --bins --test upgrade
	$(UPGRADE_TEST) record_the_present_version

# A cold build of the earlier commit takes as long as that of this one; a second run builds what differs.
.PHONY: upgrade-test
upgrade-test: REV ?= HEAD~1
upgrade-test: lab needs-rust ## an upgrade from a build of an earlier commit (REV=HEAD~1)
	git worktree add --force --detach $(UPGRADE)/tree $(REV)
	@status=0; { (cd $(UPGRADE)/tree && CARGO_TARGET_DIR=$(UPGRADE)/build cargo build --quiet --workspace --bins --test upgrade) \
		&& cargo build --quiet --workspace --bins --test upgrade \
		&& CROFT_PREVIOUS_MANIFESTS=$(UPGRADE)/tree/manifests CROFT_PREVIOUS_BINARIES=$(UPGRADE)/build/debug \
		$(UPGRADE_TEST) upgrade_from_a_built_commit_replaces_no_node_and_refuses_no_pod; } || status=$$?; \
		git worktree remove --force $(UPGRADE)/tree; exit $$status
