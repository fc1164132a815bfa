# Suites that must hold on every supported release of Kubernetes. The control planes are built one after the other, each once into the
# cache, ten minutes of two cores each.

.PHONY: test-compat
test-compat: VERSIONS ?= 1.33 1.34 1.35 1.36 1.37
test-compat: lab needs-rust $(NEXTEST) ## attacks on admission, two tenants and consolidation on every supported release of Kubernetes; VERSIONS="1.33 1.37"
	@NEXTEST=$(NEXTEST) tools/make/compat.sh $(VERSIONS)
