#!/bin/sh
# Builds what `make node-test` runs a node with, into a cache keyed by the versions of the modules here, and prints the
# folder. What is there already is not built again. runc is a package of the distribution.
#
#   CROFT_NODE_CACHE   parent of the cache folders (default: ${XDG_CACHE_HOME:-~/.cache}/croft/node)
set -eu

cd "$(dirname "$0")"

if command -v sha256sum >/dev/null 2>&1; then
    digest() { sha256sum | cut -c1-16; }
else
    digest() { shasum -a 256 | cut -c1-16; }
fi

cache=${CROFT_NODE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/croft/node}
folder=$cache/$(cat kubernetes/go.mod kubernetes/go.sum containerd/go.mod containerd/go.sum pause/main.go | digest)

pinned() { sed -n "s|^[[:space:]]*$2 \(v[0-9.]*\).*|\1|p" "$1" | head -n 1; }
kubernetes=$(pinned kubernetes/go.mod k8s.io/kubernetes)
plane=$(pinned ../lab/go.mod k8s.io/kubernetes)
if [ "$kubernetes" != "$plane" ]; then
    echo "node: tools/node/kubernetes/go.mod has Kubernetes $kubernetes, tools/lab/go.mod $plane: write the same version into both" >&2
    exit 1
fi
minor=${kubernetes#v1.}
minor=${minor%%.*}
component=k8s.io/component-base/version
kube="-s -w -X $component.gitVersion=$kubernetes -X $component.gitMajor=1 -X $component.gitMinor=$minor"
kube="$kube -X $component.gitTreeState=clean"
containerd="-s -w -X github.com/containerd/containerd/v2/version.Version=$(pinned containerd/go.mod github.com/containerd/containerd/v2)"

scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# build MODULE FLAGS PACKAGE: into place when it is whole, so that neither an interrupted build nor two at once leave half of one.
build() {
    name=${3##*/}
    [ "$name" != . ] || name=$1
    [ -x "$folder/$name" ] && return
    if [ -z "$scratch" ]; then
        mkdir -p "$folder"
        scratch=$(mktemp -d "$folder/.building.XXXXXX")
        echo "node: building the node's programs ($kubernetes) into $folder (some minutes, once)" >&2
    fi
    echo "node: $name" >&2
    # Without cgo: static programs, and no headers of the system are needed. no_btrfs and no_devmapper are snapshotters that
    # no test uses.
    (cd "$1" && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -tags "no_btrfs no_devmapper no_zfs" \
        -ldflags "$2" -o "$scratch/$name" "$3")
    mv -f "$scratch/$name" "$folder/$name"
}

build kubernetes "$kube" k8s.io/kubernetes/cmd/kubelet
build kubernetes "$kube" k8s.io/kubernetes/cmd/kube-proxy
build containerd "$containerd" github.com/containerd/containerd/v2/cmd/containerd
build containerd "$containerd" github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
build containerd "$containerd" github.com/containerd/containerd/v2/cmd/ctr
for plugin in ipam/host-local main/bridge main/loopback meta/portmap; do
    build containerd "-s -w" github.com/containernetworking/plugins/plugins/$plugin
done
build pause "-s -w" .

echo "$folder"
