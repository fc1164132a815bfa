# A release: .github/workflows/release.yaml makes and publishes it for a tag. release/address.env says where.
RELEASE_PROFILE ?= release

.PHONY: release-dry-run
release-dry-run: needs-go $(if $(filter debug,$(RELEASE_PROFILE)),build-debug,release) ## everything of a release that this computer can make, in target/dist, and nothing published; RELEASE_PROFILE=debug
	@release/dry-run.sh $(RELEASE_PROFILE) $$(tools/helm/build.sh)/helm target/dist
