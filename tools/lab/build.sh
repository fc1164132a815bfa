#!/bin/sh
# Builds a control plane into a cache keyed by its module's versions, and prints the folder. What is there already is
# not built again.
#
#   tools/lab/build.sh              the one that tests and `croft lab` run against
#   tools/lab/build.sh compat/1.33  that of another release, for `make test-compat`: etcd and kwok are the lab's
#
#   CROFT_LAB_CACHE   parent of the cache folders (default: ${XDG_CACHE_HOME:-~/.cache}/croft/lab)
#
# crates/testkit/src/assets.rs looks in the same place, by the same key.
set -eu

cd "$(dirname "$0")/${1:-.}"

if command -v sha256sum >/dev/null 2>&1; then
    digest() { sha256sum | cut -c1-16; }
else
    digest() { shasum -a 256 | cut -c1-16; }
fi

cache=${CROFT_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/croft/lab}
folder=$cache/$(cat go.mod go.sum | digest)

pinned() { sed -n "s|^[[:space:]]*$1 \(v[0-9.]*\).*|\1|p" go.mod | head -n 1; }
kubernetes=$(pinned k8s.io/kubernetes)
minor=${kubernetes#v1.}
minor=${minor%%.*}

# Without these the API server calls itself v0.0.0-master, and takes feature gates and the storage versions of
# its own release for those of another one.
component=k8s.io/component-base/version
flags="-s -w -X $component.gitVersion=$kubernetes -X $component.gitMajor=1 -X $component.gitMinor=$minor"
flags="$flags -X $component.gitTreeState=clean"

scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A binary is moved into place when it is whole, so that neither an interrupted build nor two builds at once
# leave half of one. A module has the programs that its go.mod names as tools.
build() {
    [ -x "$folder/$1" ] && return
    grep -q "^[[:space:]]$2\$" go.mod || return 0
    if [ -z "$scratch" ]; then
        mkdir -p "$folder"
        scratch=$(mktemp -d "$folder/.building.XXXXXX")
        echo "lab: building the control plane $kubernetes into $folder (some minutes, once)" >&2
    fi
    echo "lab: $1" >&2
    go build -mod=readonly -trimpath -buildvcs=false -ldflags "$flags" -o "$scratch/$1" "$2"
    mv -f "$scratch/$1" "$folder/$1"
}

build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
build kubectl k8s.io/kubernetes/cmd/kubectl
build kwok sigs.k8s.io/kwok/cmd/kwok

echo "$folder"
