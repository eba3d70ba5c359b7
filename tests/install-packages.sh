#!/bin/sh
# Install the Debian packages that the tests meet real consumers with, or say why not. No service is started.
set -eu

packages="prometheus prometheus-node-exporter nagios-nrpe-server nagios-nrpe-plugin chromium runc crun containerd docker.io podman slurmctld slurmd slurm-client munge hwloc libcap2-bin debhelper rpm zsh fish mandoc tmux"

# Another package than Debian's may have brought kubectl, and would not give it up.
command -v kubectl >/dev/null || packages="$packages kubernetes-client"

if ! command -v apt-get >/dev/null; then
	echo "install-packages.sh: no apt-get here; install by hand what matches: $packages" >&2
	exit 1
fi
missing=""
for package in $packages; do
	dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -z "$missing" ]; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "install-packages.sh: needs root: sudo apt-get install --no-install-recommends$missing" >&2
	exit 1
fi

# Maintainer scripts ask this program before they start a service; 101 forbids it (invoke-rc.d(8), deb-systemd-invoke(1p)).
# The services are enabled all the same: on a machine that boots again, disable them.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
# One by one: another distribution may lack one of them.
refused=""
for package in $missing; do
	apt-get install --yes --no-install-recommends "$package" || refused="$refused $package"
done
if [ -n "$refused" ]; then
	echo "install-packages.sh: not to be had:$refused" >&2
	exit 1
fi
