# Workflows are checked by actionlint, from its Go module.
ACTIONLINT_VERSION := 1.7.7
ACTIONLINT := $(TOOLS)/actionlint-$(ACTIONLINT_VERSION)/actionlint
$(ACTIONLINT):
	GOBIN=$(dir $@) go install github.com/rhysd/actionlint/cmd/actionlint@v$(ACTIONLINT_VERSION)

.PHONY: lint-workflows
lint-workflows: needs-go $(ACTIONLINT) ## the workflows of .github, by actionlint
	$(ACTIONLINT) -color=false

lint: lint-workflows
