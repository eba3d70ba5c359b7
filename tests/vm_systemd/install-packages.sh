#!/bin/sh
# Install the Debian packages that tests/vm_systemd needs beyond those of tests/vm, or say why not.
set -eu

packages="mmdebstrap genext2fs e2fsprogs debian-archive-keyring libc6-dev"

"$(dirname "$0")/../vm/install-packages.sh"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install --yes --no-install-recommends $packages
