#!/bin/bash
# One node of a job's Ray cluster, run by sft.sbatch through srun: `ray start` in the train image until the step ends.
#
#   ray-node.sh RUN RANK [FLAG of ray start ..]
#
# Writes a beat for the launcher every few seconds, and leaves no process and no folder behind.
set -u
RUN=$1 rank=$2
shift 2
# shellcheck source=slurm/lib.sh
. "$RUN/snapshot/slurm/lib.sh"
ulimit -n "$(ulimit -Hn)" # Ray opens a socket per worker and peer
own_tmp || { echo "$TMP is not ours; name another folder: DECKSMITH_TMP in slurm/site.env" >&2; exit 69; }
while kill -0 $$ 2> /dev/null; do date +%s > "$LOGS/beat-$rank"; sleep 5; done &
beat=$!
# Ray's helpers rename themselves, leave their parents and would stay. --pid: a process namespace of its own, which ends as a whole. Where
# the container is Pyxis's, or none, they are known by a variable that all of them inherit.
mark=DECKSMITH_STEP=$SLURM_JOB_ID.$SLURM_STEP_ID
env "$mark" "$CODE/slurm/image.sh" train "$LOGS/env" --pid "$NEMO_RL_VENV/bin/ray" start --block --num-gpus="$SFT_GPUS" "$@" &
ray=$!
end_helpers() {
  local one
  for one in /proc/[0-9]*; do
    ! grep -qszx "$mark" "$one/environ" || kill -KILL "${one#/proc/}"
  done 2> /dev/null
}
# At the job's end the driver is gone and there is nothing to drain: Ray's own way down takes up to half a minute.
trap 'end_helpers; kill -KILL "$ray"' TERM
wait "$ray"; rc=$?
trap '' TERM
kill "$beat" 2> /dev/null
end_helpers
rm -rf "$TMP" # of this job alone: `ray stop` and /tmp/ray would hit other clusters of the same user
exit "$rc"
