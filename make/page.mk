# The browser's part of the page: TypeScript and Preact, built into page/dist, which is committed so that cargo needs no npm.
# It needs Node 20 and npm.
.PHONY: page-web page-web-check
page-web: ## build page/dist from page/web, by its lock file
	cd page/web && npm ci --ignore-scripts --no-audit --no-fund --silent && npx --no-install tsc --noEmit && node build.mjs

page-web-check: page-web ## fail if page/dist isn't what page/web builds
	@test -z "$$(git status --porcelain -- page/dist)" || \
		{ git status --short -- page/dist; echo 'page/dist differs from what page/web builds: commit the result of make page-web'; exit 1; }
