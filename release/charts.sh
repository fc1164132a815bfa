#!/bin/sh
# Packages the charts with the published registry as the default of `imageRegistry`, so that they name their own images.
#
#   release/charts.sh HELM OUT
set -eu

cd "$(dirname "$0")/.."
helm=$1 out=$2
. release/address.env

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -R manifests/chart/. "$folder"
sed "s|^imageRegistry: \"\"\$|imageRegistry: \"$REGISTRY\"|" manifests/chart/croft/values.yaml >"$folder/croft/values.yaml"
grep -q "^imageRegistry: \"$REGISTRY\"\$" "$folder/croft/values.yaml" || {
    echo "release: values.yaml of the chart croft has no line imageRegistry: \"\"" >&2
    exit 1
}
mkdir -p "$out"
for name in croft-crds croft croft-tenant; do
    "$helm" package --destination "$out" "$folder/$name" >/dev/null
done
