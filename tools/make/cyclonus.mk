# cyclonus, an evaluator of NetworkPolicies that knows nothing of Croft: it answers from files what they allow.
CYCLONUS_VERSION := 0.5.6
CYCLONUS := $(TOOLS)/cyclonus-$(CYCLONUS_VERSION)/cyclonus
export CROFT_CYCLONUS := $(CYCLONUS)

$(CYCLONUS):
	GOBIN=$(dir $@) go install github.com/mattfenwick/cyclonus/cmd/cyclonus@v$(CYCLONUS_VERSION)

.PHONY: cyclonus
cyclonus: needs-go $(CYCLONUS) ## the evaluator of NetworkPolicies, for the tests

test: needs-go $(CYCLONUS)
