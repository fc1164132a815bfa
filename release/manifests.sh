#!/bin/sh
# Writes what package managers read of a release, with the checksums of its archives: OUT/croft.yaml for krew, OUT/croft.rb for
# Homebrew. One list of systems is the source of both. Homebrew takes a formula from a tap alone: the workflow puts croft.rb
# into Formula/ of the repository TAP.
#
#   release/manifests.sh VERSION ARCHIVES OUT     ARCHIVES: the folder of croft-OS-ARCH.tar.gz
set -eu

version=$1 archives=$2 out=$3
. "$(dirname "$0")/address.env"
systems="darwin/amd64 darwin/arm64 linux/amd64 linux/arm64"
summary="Gives every tenant of a shared Kubernetes cluster its own nodes"

sum() {
    if command -v sha256sum >/dev/null 2>&1; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

# archive SYSTEM: its address and its checksum, as two words.
archive() {
    name=croft-$(echo "$1" | tr / -).tar.gz
    [ -f "$archives/$name" ] || { echo "release: $archives/$name is missing: build it first (release/pack.sh)" >&2; exit 1; }
    echo "$SOURCE/releases/download/v$version/$name $(sum "$archives/$name")"
}

krew() {
    cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: croft
spec:
  version: v$version
  homepage: $SOURCE
  shortDescription: $summary
  description: |
    Explains why pods are pending and why nodes are kept, shows what tenants cost, checks an installation, and plans changes
    before they are applied.
  platforms:
END
    for system in $systems; do
        found=$(archive "$system")
        set -- $found
        cat <<END
  - selector:
      matchLabels: {os: ${system%/*}, arch: ${system#*/}}
    uri: $1
    sha256: $2
    bin: croft
END
    done
}

homebrew() {
    cat <<END
class Croft < Formula
  desc "$summary"
  homepage "$SOURCE"
  version "$version"
  license "Apache-2.0"
END
    for system in $systems; do
        found=$(archive "$system")
        set -- $found
        case ${system%/*} in darwin) os=macos ;; *) os=linux ;; esac
        case ${system#*/} in arm64) cpu=arm ;; *) cpu=intel ;; esac
        cat <<END

  on_$os do
    on_$cpu do
      url "$1"
      sha256 "$2"
    end
  end
END
    done
    cat <<END

  def install
    bin.install "croft"
    generate_completions_from_executable(bin/"croft", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/croft version")
  end
end
END
}

mkdir -p "$out"
krew >"$out/croft.yaml"
homebrew >"$out/croft.rb"
