#!/bin/sh
# Slurm's TaskProlog: every Python of a task gets the probe, and all tasks of a step are one run.
# Slurm sets what a line `export NAME=value` has. A task runs without the probe rather than not at all.
values=$(gpuwatch env 2>/dev/null) || exit 0
eval "$values"
echo "export PYTHONPATH=$PYTHONPATH"
echo "export GPUWATCH_PROBE_SO=$GPUWATCH_PROBE_SO"
echo "export GPUWATCH_RUN=slurm-${SLURM_JOB_ID:-0}.${SLURM_STEP_ID:-0}"
