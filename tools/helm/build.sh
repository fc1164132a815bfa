#!/bin/sh
# Builds Helm, by which the manifests are rendered and the chart is tested, into a cache keyed by this module's versions,
# and prints the folder. What is there already is not built again.
#
#   CROFT_CACHE   parent of the cache folders (default: ${XDG_CACHE_HOME:-~/.cache}/croft)
#
# crates/testkit/src/helm.rs looks in the same place, by the same key.
set -eu

cd "$(dirname "$0")"

if command -v sha256sum >/dev/null 2>&1; then
    digest() { sha256sum | cut -c1-16; }
else
    digest() { shasum -a 256 | cut -c1-16; }
fi

cache=${CROFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/croft}
folder=$cache/helm/$(cat go.mod go.sum | digest)

if [ ! -x "$folder/helm" ]; then
    mkdir -p "$folder"
    # Moved into place when it is whole, so that neither an interrupted build nor two builds at once leave half of it.
    scratch=$(mktemp -d "$folder/.building.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    echo "helm: building into $folder (a few minutes, once)" >&2
    # The flags of tools/lab/build.sh, so that packages which both have are compiled once.
    go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$scratch/helm" helm.sh/helm/v4/cmd/helm
    mv -f "$scratch/helm" "$folder/helm"
fi

echo "$folder"
