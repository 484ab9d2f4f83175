#!/bin/sh
# Slurm's Epilog, as root on each node: ends what prolog.sh started, with the user's last job on this node.
state=${GPUWATCH_STATE:-/run/gpuwatch}/${SLURM_JOB_UID:?}
rm -f "$state/jobs/${SLURM_JOB_ID:?}"
if rmdir "$state/jobs" 2>/dev/null && [ -f "$state/pid" ]; then
    kill "$(cat "$state/pid")" 2>/dev/null
    rm -f "$state/pid"
    rmdir "$state" 2>/dev/null
fi
exit 0
