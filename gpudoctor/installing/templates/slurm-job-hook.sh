#!/bin/sh
# @NAME@ of slurm.conf. Slurm drains the node for every @MODE@ that does not end with 0, so this one does so for nothing but a
# GPU of the job that fails, where /etc/gpudoctor/config.toml allows it ([slurm], docs/slurm.md); never for a gpudoctor that
# is missing, crashes, is killed, or hangs.
#
# Slurm sets no PATH here. A process that sleeps uninterruptibly cannot be killed, and `timeout` would wait for it: the watcher
# below has this script leave instead, after SECONDS_AT_MOST. scontrol must not be called from here, and gpudoctor does not.

: "${GPUDOCTOR:=@COMMAND@}"
: "${SECONDS_AT_MOST:=12}"

ends=0
trap 'exit "$ends"' EXIT
trap 'exit 0' HUP INT TERM
late=
trap 'late=1' ALRM
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT

# A job without a GPU has nothing to wait for.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

(
	sleep "$SECONDS_AT_MOST" &
	nap=$!
	trap 'kill "$nap"; exit' TERM
	wait "$nap" && kill -s ALRM $$
) </dev/null >/dev/null 2>&1 &
watcher=$!

"$GPUDOCTOR" slurm @MODE@ </dev/null >/dev/null 2>&1 &
doctor=$!
# A trapped signal ends the wait at once, with a status above 128 (POSIX, sh, wait).
wait "$doctor"
status=$?
[ -z "$late" ] || kill -s KILL "$doctor" 2>/dev/null
kill "$watcher" 2>/dev/null
# The one status that gpudoctor ends with for a finding, and that nothing else ends with.
[ "$status" -ne 96 ] || ends=1
exit "$ends"
