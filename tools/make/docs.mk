# The book: the pages of docs/, built by mdBook, whose compilation takes minutes. The links are checked by `make lint`.
MDBOOK_VERSION := 0.5.4
MDBOOK := $(TOOLS)/mdbook-$(MDBOOK_VERSION)/bin/mdbook
BOOK   := target/book

# Without the server and the watcher of files, which a build doesn't need.
$(MDBOOK): export CARGO_PROFILE_RELEASE_OPT_LEVEL := 0
$(MDBOOK): export CARGO_PROFILE_RELEASE_LTO := off
$(MDBOOK): export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
$(MDBOOK):
	cargo install --locked mdbook --version $(MDBOOK_VERSION) --no-default-features --features search --root $(TOOLS)/mdbook-$(MDBOOK_VERSION)

# A link to a page outside docs/ has no target in the book: it becomes the path of the page in the repository.
.PHONY: docs
docs: needs-rust $(MDBOOK) ## the book of docs/ in target/book, with its links checked
	cargo build --quiet --workspace --bin croft-xtask --test fixtures
	$(XTASK) links
	$(MDBOOK) build docs
	@find $(BOOK) -name '*.html' -exec sed -i -E 's#<a href="(\.\./)+((designs|certs|manifests|tests)/[^"]*|[A-Z]+)\.(html|md)(\#[^"]*)?">([^<]*)</a>#\6 (<code>\2.md</code>)#g' {} +
	@echo "docs: $(BOOK)/index.html"

.PHONY: docs-test
docs-test: lab helm ## the commands of the task pages in docs/tasks, on one lab
	cargo build --quiet --workspace --bins --test quick_start
	cargo test --workspace --test quick_start -- --ignored --nocapture
