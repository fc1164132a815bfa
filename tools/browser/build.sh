#!/bin/sh
# Installs what drives the page in a browser into a cache keyed by the lock file here, and prints the folder. What is there already
# is not installed again. Chromium, Node and npm are packages of the distribution: on Debian, root gets those that are missing.
#
#   CROFT_CACHE   parent of the cache folders (default: ${XDG_CACHE_HOME:-~/.cache}/croft)
#
# crates/testkit/src/browser.rs looks in the same place, by the same key.
set -eu

cd "$(dirname "$0")"

if command -v sha256sum >/dev/null 2>&1; then
    digest() { sha256sum | cut -c1-16; }
else
    digest() { shasum -a 256 | cut -c1-16; }
fi

missing=
[ -n "${CROFT_CHROMIUM:-}" ] || command -v chromium >/dev/null || missing="$missing chromium"
command -v node >/dev/null || missing="$missing nodejs"
command -v npm >/dev/null || missing="$missing npm"
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "browser: the page's tests need these packages, or another Chromium as CROFT_CHROMIUM:$missing. Install them, then run make again." >&2
        exit 1
    fi
    echo "browser: installing Debian's packages:$missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >&2
fi

cache=${CROFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/croft}/browser
folder=$cache/$(cat package.json package-lock.json | digest)
if [ ! -d "$folder/node_modules" ]; then
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/.building.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    cp package.json package-lock.json "$scratch"
    echo "browser: installing playwright-core and axe-core into $folder" >&2
    (cd "$scratch" && npm ci --ignore-scripts --no-audit --no-fund --silent) >&2
    # Into place when it is whole; another build may have been faster.
    mv -T "$scratch" "$folder" 2>/dev/null || [ -d "$folder/node_modules" ]
fi
echo "$folder"
