# Croft on EKS, in an account of yours, and the AWS CLI that its test runs.

.PHONY: eks-smoke
eks-smoke: ## Croft on EKS in your AWS account, with a cost cap, and everything removed; PLAN=1 only prints it (see tools/make/eks-smoke.sh)
	@tools/make/eks-smoke.sh $(if $(PLAN),--plan)

AWS_CLI_VERSION := 1.46.3
AWS_CLI := $(CACHE)/aws-cli-$(AWS_CLI_VERSION)
export CROFT_AWS_CLI := $(AWS_CLI)/bin/aws

$(AWS_CLI)/bin/aws:
	@command -v python3 >/dev/null || { echo "the test of tools/make/eks-smoke.sh needs python3 (with venv): install it" >&2; exit 1; }
	rm -rf $(AWS_CLI)
	python3 -m venv $(AWS_CLI)
	$(AWS_CLI)/bin/python -m pip install --quiet --disable-pip-version-check 'awscli==$(AWS_CLI_VERSION)'

test: $(AWS_CLI)/bin/aws
