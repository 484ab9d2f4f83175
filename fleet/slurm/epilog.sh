#!/bin/sh
# Slurm's Epilog, as root on each node: ends what prolog.sh started, with the user's last job on this node.
state=${GPUWATCH_STATE:-/run/gpuwatch}/${SLURM_JOB_UID:?}
rm -f "$state/jobs/${SLURM_JOB_ID:?}"
if rmdir "$state/jobs" 2>/dev/null && [ -f "$state/pid" ]; then
    # As the user, because the number of a process that has ended may be another user's by now.
    as_user=
    if [ "$(id -u)" != "$SLURM_JOB_UID" ]; then
        as_user="setpriv --reuid=$SLURM_JOB_UID --regid=${SLURM_JOB_GID:-$SLURM_JOB_UID} --clear-groups"
    fi
    $as_user sh -c 'kill "$0"' "$(cat "$state/pid")" 2>/dev/null
    rm -f "$state/pid"
    rmdir "$state" 2>/dev/null
fi
exit 0
