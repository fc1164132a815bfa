# The browser that the page is tested in, and what drives it.

.PHONY: browser
browser: ## what drives the page in Chromium, into the cache; as root also Debian's chromium, nodejs and npm
	@tools/browser/build.sh >/dev/null

test: browser
