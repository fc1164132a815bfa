# The programs of a release, and their images.
TARGET := $(or $(CARGO_TARGET_DIR),target)
COMMIT = $(shell git rev-parse --short=12 HEAD 2>/dev/null)$(shell git diff --quiet HEAD 2>/dev/null || echo -changed)
COMMIT_DATE = $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%d --format=%cd 2>/dev/null)

# In one call, so that features are those of the workspace and what they share is built once.
.PHONY: release
release: needs-rust needs-cc ## the optimised programs, which know their commit
	$(if $(CROFT_COMMIT),,CROFT_COMMIT=$(COMMIT) CROFT_COMMIT_DATE=$(COMMIT_DATE)) cargo build --release --bin croft --bin croft-webhook --bin croft-controller --bin croft-page --bin ec2-sim --bin croft-xtask

.PHONY: images
images: release ## OCI images of webhook, controller and page in target/images, without registry or daemon, with symbols and SBOM
	$(if $(CROFT_COMMIT),,CROFT_COMMIT=$(COMMIT)) $(TARGET)/release/croft-xtask images --binaries $(TARGET)/release --out target/images

# As root: containers take cgroups, mounts and network namespaces. PROFILE=debug tests what `make test` has built, without an
# optimised build.
PROFILE ?= release
.PHONY: node-test build-debug
build-debug:
	cargo build --quiet --workspace --bins --tests
# The images of Croft and of the pods' sandbox, beside the folder of the programs, where node-test and `croft lab up
# --real-node` find them.
.PHONY: node-images
node-images: needs-go helm $(if $(filter debug,$(PROFILE)),build-debug,release) ## the programs and images of real nodes, for node-test and `croft lab up --real-node`; PROFILE=debug
	@programs=$$(tools/node/build.sh) && \
		$(TARGET)/$(PROFILE)/croft-xtask images --binaries $(TARGET)/$(PROFILE) --out $(TARGET)/node-images && \
		$(TARGET)/$(PROFILE)/croft-xtask images --program $$programs/pause --out $(TARGET)/node-images

node-test: lab node-images ## webhook and controller from their images on two real nodes (kubelet, containerd), under load; as root; PROFILE=debug, SKIP_NODE=1
	$(if $(filter debug,$(PROFILE)),,cargo build --quiet --release --bin node-test)
	@$(TARGET)/$(PROFILE)/node-test
