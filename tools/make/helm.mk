# Helm, which renders the manifests from the chart.

.PHONY: helm
helm: needs-go ## build Helm into the cache, once per version
	@tools/helm/build.sh >/dev/null

lint: helm
generate: helm
test: helm
