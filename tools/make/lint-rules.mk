# Alerts are checked and tested by promtool: the one on PATH, or that of Debian's package prometheus. The package is fetched and
# unpacked into the cache in seconds, without root (19 MB). The Go module needs 1.8 GB of modules of every cloud's client, and more
# than ten minutes. Where neither is at hand, the rules aren't checked.
PROMTOOL := $(or $(shell command -v promtool 2>/dev/null),$(TOOLS)/promtool/usr/bin/promtool)
$(TOOLS)/promtool/usr/bin/promtool:
	@command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 0; \
	scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && cd "$$scratch" && \
	{ apt-get download -qq prometheus >/dev/null 2>&1 || exit 0; } && \
	dpkg-deb -x prometheus_*.deb x && mkdir -p $(dir $@) && mv x/usr/bin/promtool $@

.PHONY: lint-rules
lint-rules: $(PROMTOOL) ## the alerts, by promtool: syntax and unit tests
	@if [ -x $(PROMTOOL) ]; then \
		$(PROMTOOL) check rules manifests/alerts/croft.yaml && $(PROMTOOL) test rules manifests/alerts/tests.yaml; \
	else echo "lint: alerts not checked: install promtool"; fi

lint: lint-rules
