#!/bin/bash
# One reward server of a job, run by rl.sbatch through srun: bin/reward-serve until the step ends.
#
#   reward-node.sh RUN NUMBER ADDRESS
#
# What it has measured lies on the node's own disk, since its database wants no network file system, and goes with the job; its address
# file is RUN/rewards/NUMBER.json. The token is DECKSMITH_REWARD_TOKEN of the environment.
set -u
RUN=$1 number=$2 host=$3
# shellcheck source=slurm/lib.sh
. "$RUN/snapshot/slurm/lib.sh"
own_tmp || { echo "$TMP is not ours; name another folder: DECKSMITH_TMP in slurm/site.env" >&2; exit 69; }
export TMPDIR=$TMP
"$CODE/bin/reward-serve" --root "$TMP/rewards-$number" --address "$RUN/rewards/$number.json" --rules "$RL_REWARD_RULES" \
  --host "$host" --jobs "$RL_REWARD_JOBS" &
server=$!
# INT is its own way down: what is under way is kept.
trap 'kill -INT "$server" 2> /dev/null' TERM INT
until wait "$server"; rc=$?; ! kill -0 "$server" 2> /dev/null; do :; done
rm -rf "$TMP/rewards-$number"
[ "${SLURM_HET_SIZE:-1}" -lt 2 ] || rm -rf "$TMP" # no Ray's on this node
exit "$rc"
