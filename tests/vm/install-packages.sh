#!/bin/sh
# Install the Debian packages that tests/vm needs, or say why not.
set -eu

packages="qemu-system-x86 linux-image-cloud-amd64 linux-headers-cloud-amd64 busybox-static gcc binutils make libc-bin"

if ! command -v apt-get >/dev/null; then
	echo "install-packages.sh: no apt-get here; install by hand what matches: $packages" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "install-packages.sh: needs root: sudo apt-get install --no-install-recommends $packages" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
# shellcheck disable=SC2086
apt-get install --yes --no-install-recommends $packages
# Distributions other than Debian keep the kernel image readable by root only.
chmod a+r /boot/vmlinuz-*-cloud-amd64
