#!/bin/sh
# Writes the Go module of one control plane: tools/lab/compat/derive.sh 1.38.0 writes go.mod and go.sum of tools/lab/compat/1.38.
#
# k8s.io/kubernetes names its staging modules as folders of its own repository, which a module proxy doesn't carry. The
# module replaces each by the version that is published with the same release (v1.x.y -> v0.x.y).
set -eu

version=${1:?"name a version, such as 1.38.0"}
patch=${version#1.}
minor=${patch%%.*}
release=1.$minor
mkdir -p "$(dirname "$0")/$release"
cd "$(dirname "$0")/$release"

published=$(cd / && go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
language=$(sed -n 's/^go //p' "$published")
rm -f go.sum
{
    echo "// The control plane of Kubernetes $version, written by tools/lab/compat/derive.sh."
    echo "module croft.dev/lab/compat/$release"
    echo
    echo "go $language"
    echo
    # The behaviour that the release itself is built with.
    sed -n 's/^godebug /&/p' "$published"
    echo
    echo "tool ("
    for program in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
        echo "	k8s.io/kubernetes/cmd/$program"
    done
    echo ")"
    echo
    echo "require k8s.io/kubernetes v$version"
    echo
    echo "replace ("
    sed -n 's|^[[:space:]]*\(k8s.io/[a-z-]*\) v0\.0\.0$|\1|p; s|^[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging.*|\1|p' "$published" |
        sort -u | grep -v '/sample-' | while read -r module; do
        echo "	$module => $module v0.$patch"
    done
    echo ")"
} >go.mod
go mod tidy
