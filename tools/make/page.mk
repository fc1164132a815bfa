# The browser's part of the page: TypeScript and Preact, built into page/dist, which is committed so that cargo needs no npm.
# It needs Node 20 and npm.
.PHONY: page-web page-web-check
page-web: ## build page/dist from page/web, by its lock file
	cd page/web && npm ci --ignore-scripts --no-audit --no-fund --silent && npx --no-install tsc --noEmit && node build.mjs

page-web-check: page-web ## fail if page/dist isn't what page/web builds
	@test -z "$$(git status --porcelain -- page/dist)" || \
		{ git status --short -- page/dist; echo 'page/dist differs from what page/web builds: commit the result of make page-web'; exit 1; }

.PHONY: page-screenshots
page-screenshots: lab browser ## write the pictures of docs/page: the page as a test shows it in Chromium
	cargo build --quiet --workspace --bins --test page
	CROFT_PAGE_SCREENSHOTS=$(CURDIR)/docs/page cargo test --quiet --workspace --test page operators_and_tenants

.PHONY: bench-page
bench-page: lab browser ## the page with 50 tenants, 1,000 nodes and 10,000 pods in headless Chromium; sizes of ledger and log; the model at 10,000 nodes and tenants
	cargo build --quiet --release --bin croft-page --bin bench-page
	$(or $(CARGO_TARGET_DIR),target)/release/bench-page
