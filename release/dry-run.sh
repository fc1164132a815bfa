#!/bin/sh
# Makes everything of a release that this computer can make, publishes nothing, and lists the files.
#
#   release/dry-run.sh PROFILE HELM OUT     PROFILE: release or debug, which is what is built already
set -eu

cd "$(dirname "$0")/.."
profile=$1 helm=$2 out=$3
. release/address.env
programs=${CARGO_TARGET_DIR:-target}/$profile
rm -rf "$out"
mkdir -p "$out"

version=$("$programs/croft" version -o json | sed -n 's/^ *"version": "\(.*\)".*/\1/p')
[ -n "$version" ] || { echo "release: $programs/croft says no version" >&2; exit 1; }
os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in arm64 | aarch64) arch=arm64 ;; *) arch=amd64 ;; esac

release/charts.sh "$helm" "$out"
# Nobody gets this program, so it may need the glibc of this computer.
GLIBC=9999 release/pack.sh "$programs/croft" "$os" "$arch" "$out"
"$programs/croft-xtask" schemas --out "$out/schemas"
tar -C "$out/schemas" -cf - . | gzip -9n >"$out/croft-schemas.tar.gz"
rm -rf "$out/schemas"

# The archives of other systems are made by the workflow on each of them. The manifests are checked here with stand-ins.
stand_ins=$(mktemp -d)
trap 'rm -rf "$stand_ins"' EXIT
for system in darwin-amd64 darwin-arm64 linux-amd64 linux-arm64; do
    cp "$out/croft-$os-$arch.tar.gz" "$stand_ins/croft-$system.tar.gz"
done
release/manifests.sh "$version" "$stand_ins" "$out"

for name in "croft-$version.tgz" "croft-crds-$version.tgz" "croft-tenant-$version.tgz" croft.yaml croft.rb croft-schemas.tar.gz; do
    [ -s "$out/$name" ] || { echo "release: $name is missing; write the version of Cargo.toml into the charts: make generate" >&2; exit 1; }
done
if command -v ruby >/dev/null 2>&1; then ruby -c "$out/croft.rb" >/dev/null; fi
(cd "$out" && if command -v sha256sum >/dev/null 2>&1; then sha256sum -- *; else shasum -a 256 -- *; fi) >"$out.SHA256SUMS"
mv "$out.SHA256SUMS" "$out/SHA256SUMS"

echo "Croft $version, made here in $out:"
ls -l "$out" | awk 'NF > 8 { printf "  %10d  %s\n", $5, $9 }'
echo "A tag v$version publishes these, and of each system and image:"
for system in darwin-amd64 darwin-arm64 linux-amd64 linux-arm64; do echo "  $SOURCE/releases/download/v$version/croft-$system.tar.gz"; done
for image in croft-webhook croft-controller croft-page; do echo "  $REGISTRY/$image:$version"; done
for chart in croft-crds croft croft-tenant; do echo "  oci://$REGISTRY/$chart --version $version"; done
echo "  Formula/croft.rb of https://github.com/$TAP, with the secret TAP_TOKEN"
echo "  SHA256SUMS, and SHA256SUMS.sigstore.json that signs it"
