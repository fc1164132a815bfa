# The linter of manifests/aws/croft.yaml and the reader of the Terraform module, in a virtual environment of their own.
CFN_LINT_VERSION := 1.58.0
HCL2_VERSION := 8.1.4
CFN_LINT := $(CACHE)/cfn-lint-$(CFN_LINT_VERSION)-hcl2-$(HCL2_VERSION)
export CROFT_CFN_LINT := $(CFN_LINT)/bin/cfn-lint
export CROFT_HCL2 := $(CFN_LINT)/bin/hcl2tojson

$(CFN_LINT)/bin/cfn-lint:
	@command -v python3 >/dev/null || { echo "the tests of manifests/aws need python3 (with venv): install it" >&2; exit 1; }
	rm -rf $(CFN_LINT)
	python3 -m venv $(CFN_LINT)
	$(CFN_LINT)/bin/python -m pip install --quiet --disable-pip-version-check 'python-hcl2==$(HCL2_VERSION)' 'cfn-lint==$(CFN_LINT_VERSION)'

test: $(CFN_LINT)/bin/cfn-lint
