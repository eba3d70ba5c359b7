#!/bin/sh
# HealthCheckProgram of slurm.conf. Ends with 0 whatever happens to gpudoctor; what it does to the node is configured in
# /etc/gpudoctor/config.toml ([slurm], docs/slurm.md), and by default it is nothing.
#
# Slurm sets no PATH here. A process that sleeps uninterruptibly cannot be killed, and `timeout` would wait for it: the watcher
# below has this script leave instead, after SECONDS_AT_MOST (Slurm kills a health check after 60 s).

: "${GPUDOCTOR:=@COMMAND@}"
: "${SECONDS_AT_MOST:=45}"

trap 'exit 0' EXIT HUP INT TERM
late=
trap 'late=1' ALRM
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT

(
	sleep "$SECONDS_AT_MOST" &
	nap=$!
	trap 'kill "$nap"; exit' TERM
	wait "$nap" && kill -s ALRM $$
) </dev/null >/dev/null 2>&1 &
watcher=$!

"$GPUDOCTOR" slurm health-check </dev/null >/dev/null 2>&1 &
doctor=$!
# A trapped signal ends the wait at once, with a status above 128 (POSIX, sh, wait).
wait "$doctor"
[ -z "$late" ] || kill -s KILL "$doctor" 2>/dev/null
kill "$watcher" 2>/dev/null
exit 0
