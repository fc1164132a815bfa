#!/bin/sh
# Packs the command line of one system: OUT/croft-OS-ARCH.tar.gz with croft and LICENSE.
#
#   release/pack.sh PROGRAM OS ARCH OUT      OS: linux or darwin; ARCH: amd64 or arm64
#
# GLIBC is the newest glibc that the program may need.
set -eu

program=$1 os=$2 arch=$3 out=$4
mkdir -p "$out"
out=$(cd "$out" && pwd)
license=$(cd "$(dirname "$0")/.." && pwd)/LICENSE
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$program" "$folder/croft"
cp "$license" "$folder/LICENSE"
chmod 755 "$folder/croft"
# A program starts with the glibc that it was linked with, or a newer one: this one is of 2021, and that of RHEL 9 and Amazon Linux 2023.
glibc=${GLIBC:-2.34}
if [ "$os" = linux ]; then
    needed=$(objdump -T "$folder/croft" | sed -n 's/.*[( ]GLIBC_\([0-9][0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
    newest=$(printf '%s\n' "$glibc" "${needed:-0}" | sort -V | tail -n 1)
    if [ "$newest" != "$glibc" ]; then
        echo "release: $program needs glibc $needed, which many systems lack: build it where glibc is $glibc or older, such as Ubuntu 22.04" >&2
        exit 1
    fi
fi
case $os in
    linux) objcopy --strip-all "$folder/croft" ;;
    # An arm64 program without a signature doesn't start; codesign makes the one that needs no certificate.
    darwin) strip "$folder/croft" && codesign --force --sign - "$folder/croft" ;;
    *) echo "release: $os is no system: write linux or darwin" >&2 && exit 2 ;;
esac
cd "$folder"
if tar --version 2>/dev/null | grep -q GNU; then
    # The same bytes from the same program.
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$date" -cf - croft LICENSE
else
    COPYFILE_DISABLE=1 tar -cf - croft LICENSE
fi | gzip -9n >"$out/croft-$os-$arch.tar.gz"
