# The independent AWS emulator that the EC2 provider is tested against, in a virtual environment of its own.
MOTO_VERSION := 5.2.5
MOTO := $(CACHE)/moto-$(MOTO_VERSION)
export CROFT_MOTO := $(MOTO)/bin/moto_server

$(MOTO)/bin/moto_server:
	@command -v python3 >/dev/null || { echo "the tests against moto need python3 (with venv): install it" >&2; exit 1; }
	rm -rf $(MOTO)
	python3 -m venv $(MOTO)
	$(MOTO)/bin/python -m pip install --quiet --disable-pip-version-check 'moto[server]==$(MOTO_VERSION)'

.PHONY: moto
moto: $(MOTO)/bin/moto_server ## the AWS emulator moto, for the tests

test: $(MOTO)/bin/moto_server
