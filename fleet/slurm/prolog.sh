#!/bin/sh
# Slurm's Prolog, as root on each node: keeps the figures of the user's jobs in a file for node_exporter's textfile collector.
# Users must be able to make files there: install -d -m 1777 "$GPUWATCH_TEXTFILES".
# A job starts without its figures rather than not at all.
folder=${GPUWATCH_TEXTFILES:-/var/lib/prometheus/node-exporter}
state=${GPUWATCH_STATE:-/run/gpuwatch}/${SLURM_JOB_UID:?}
mkdir -p "$state/jobs" && : >"$state/jobs/${SLURM_JOB_ID:?}" || exit 0

# As the user, because the number of a process that has ended may be another user's by now.
as_user=
if [ "$(id -u)" != "$SLURM_JOB_UID" ]; then
    as_user="setpriv --reuid=$SLURM_JOB_UID --regid=${SLURM_JOB_GID:?} --clear-groups"
fi

# One for all jobs of the user on this node.
if [ -f "$state/pid" ] && $as_user sh -c 'kill -0 "$0"' "$(cat "$state/pid")" 2>/dev/null; then
    exit 0
fi
setsid $as_user gpuwatch serve --textfile "$folder/gpuwatch-$SLURM_JOB_UID.prom" </dev/null >/dev/null 2>&1 &
echo $! >"$state/pid"
exit 0
