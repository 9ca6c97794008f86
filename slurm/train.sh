# shellcheck shell=bash
# A training by NeMo-RL on the nodes of one job: Ray in the train image, the driver, and a chain of requeues until the steps are complete.
# The body of sft.sbatch and rl.sbatch, which have read lib.sh.
#
# Done means: the newest checkpoint's training_info.json has reached the recipe's max_num_steps. The driver's exit code decides
# nothing: it is 0, too, when the time was up. An unfinished job is requeued if this start has saved a new checkpoint, or lost a node.
#
# Whoever reads this may define before_ray (what the driver needs beside Ray), helpers_alive (called every two seconds) and
# HELPERS (pids of sruns of steps called helper-*, which are ended last).

declare -F before_ray > /dev/null || before_ray() { :; }
declare -F helpers_alive > /dev/null || helpers_alive() { :; }
HELPERS=()
CHECKPOINTS=$SFT_CHECKPOINTS TARGET=$SFT_STEPS
: "${SFT_READY_S:=900}"    # how long Ray may take to be complete
: "${SFT_SETUP_S:=600}"    # how long the driver loads the model before its own clock starts
: "${SFT_SAVE_S:=600}"     # how long before the limit the last checkpoint is begun
: "${SFT_STALL_S:=2700}"   # how long the driver may be silent
: "${SFT_BEAT_S:=180}"     # how long a node may be silent: file systems cache for a minute
export NEMO_RL_HOME="${NEMO_RL_HOME:-/opt/nemo-rl}" NEMO_RL_VENV="${NEMO_RL_VENV:-/opt/nemo_rl_venv}" # where the image has them
: "${SFT_RESTARTS:=30}"    # how often one job may be requeued

# The newest whole checkpoint's total_steps; 0 without one.
steps_done() {
  local newest steps
  newest=$(find "$CHECKPOINTS" -maxdepth 1 -name 'step_[0-9]*' 2> /dev/null | sort -V | tail -n 1)
  steps=$(sed -n 's/.*"total_steps": *\([0-9]*\).*/\1/p' "$newest/training_info.json" 2> /dev/null)
  echo "${steps:-0}"
}

# lost_starts STEP: how often this job has begun at a step and lost a node there: Slurm ended it without a word of ours, or we saw the node
# go. A start that was preempted has its own line and does not count.
lost_starts() {
  local lines starts ends
  lines=$(grep "\"job\":\"$SLURM_JOB_ID\"" "$RUN/slurm/starts.jsonl" 2> /dev/null)
  starts=$(grep -c "\"from\":$1," <<< "$lines")
  ends=$(grep "\"to\":$1," <<< "$lines" | grep -vc 'no sign of life\|does not answer')
  echo $((starts > ends ? starts - ends : 0))
}

# everywhere SECONDS COMMAND..: once on every node, outside of containers.
everywhere() {
  local seconds=$1
  shift
  timeout "$seconds" srun --overlap --nodes="${#nodes[@]}" --ntasks-per-node=1 --cpu-bind=none --mem=0 "$@" < /dev/null
}

# on NODE STEP COMMAND..: start a step on one node, its output in LOGS/STEP.log; the pid of its srun is in $!.
# --overlap: several steps share the nodes. --cpu-bind=none, --mem=0: each of them may use all of its node.
on() {
  local node=$1 step=$2
  shift 2
  srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" --cpu-bind=none --mem=0 --job-name="$step" "${ENTER[@]}" "$@" \
    > "$LOGS/$step.log" 2>&1 < /dev/null &
}

ENTER=() # flags of srun for a step in the container
steps=() # pids of the sruns that hold the nodes, in the nodes' order
work=    # pid of the srun of the probe or the driver

# end SIGNAL PATTERN PID..: signal the steps of that name, and wait for their sruns. (A TERM to srun itself kills its step at once.)
end() {
  local pid
  squeue -h -s -j "$SLURM_JOB_ID${SLURM_JOB_ID_HET_GROUP_1:+,$SLURM_JOB_ID_HET_GROUP_1}" -o '%i %j' | awk -v name="$2" '$1 ~ /[.][0-9]+$/ && $2 ~ "^(" name ")$" { print $1 }' |
    xargs -r -n 1 -P 16 timeout 5 scancel --signal="$1" 2> /dev/null # for a dead node it would wait until Slurm has given it up
  shift 2
  for _ in {1..24}; do
    for pid; do ! kill -0 "$pid" 2> /dev/null || { sleep 0.5; continue 2; }; done
    break
  done
}

teardown() {
  # The driver first: then Ray has nobody left to serve. Workers before the head.
  [ -z "$work" ] || end TERM 'ready|driver' "$work"
  [ ${#steps[@]} -lt 2 ] || end TERM 'ray-worker-.*' "${steps[@]:1}"
  [ ${#steps[@]} -lt 1 ] || end TERM ray-head "${steps[0]}"
  [ ${#HELPERS[@]} -lt 1 ] || end TERM 'helper-.*' "${HELPERS[@]}"
  # What did not end by itself; a step of a dead node never does, and its srun would wait for ever.
  end KILL '.*'
  for pid in $work "${steps[@]}" "${HELPERS[@]}"; do { kill -KILL "$pid"; wait "$pid"; } 2> /dev/null; done
  rm -rf "$TMP"
  # Pyxis keeps a container that has a name, and from inside TMP is a mount that cannot be removed.
  # shellcheck disable=SC2016  # of the nodes' shell
  [ ${#ENTER[@]} = 0 ] || everywhere 60 sh -c 'enroot remove -f "pyxis_$1" "pyxis_$2_$1"; rm -rf "$3"' - "$NAME" "$SLURM_JOB_ID" "$TMP" \
    > "$LOGS/cleanup.log" 2>&1
}

# finish STATUS REASON: end this start, and decide whether there is another one.
exec {log}>&1
finish() {
  local status=$1 reason=$2 now
  trap '' USR1 TERM
  exec >&"$log" # a signal may come while a function writes to a file
  say "ending: $reason"
  # Before the teardown, which a preemption may cut short.
  printf '{"job":"%s","restart":%d,"to":%d,"seconds":%d,"reason":"%s"}\n' "$SLURM_JOB_ID" "$RESTART" "$(steps_done)" "$SECONDS" "${reason//[\"\\]/ }" \
    >> "$RUN/slurm/starts.jsonl"
  teardown
  now=$(steps_done)
  if [ "$now" -ge "$TARGET" ]; then
    say "done: $now of $TARGET steps"
    exit 0
  elif [ "$status" = 143 ]; then
    say "stopped at step $now of $TARGET: $reason"
  elif [ "$now" -le "$FROM" ] && [ -z "$unlucky" ]; then
    say "ended at step $now of $TARGET: $reason; no new checkpoint since this start, so it is not tried again; see $LOGS"
  elif [ "$RESTART" -ge "$SFT_RESTARTS" ]; then
    say "ended at step $now of $TARGET: $reason; requeued $RESTART times already (SFT_RESTARTS)"
  else
    say "requeued at step $now of $TARGET: $reason"
    trap 'exit 143' TERM # Slurm ends this shell now, and its child perhaps before it
    # After a lost node Slurm may have requeued it already.
    if said=$(scontrol requeue "$SLURM_JOB_ID" 2>&1) || [[ $said == *'pending execution'* ]]; then
      sleep 120 || { sleep 20 & wait; }
    fi
    [ -z "$said" ] || say "$said"
    say "ended at step $now of $TARGET: $reason; Slurm did not requeue; submit the run again, it goes on from there"
    status=75
  fi
  [ "$status" != 0 ] || status=1 # a driver that said 0 with steps missing
  exit "$status"
}

# A wait that a signal cuts short.
pause() { sleep "$1" & wait $!; }

# Ends the job when a node's step has ended, or its beat does not change any more. By content: clocks of nodes differ.
declare -a beat beat_at
nodes_alive() {
  local rank now
  for rank in "${!steps[@]}"; do
    kill -0 "${steps[rank]}" 2> /dev/null || finish 1 "Ray ended on ${nodes[rank]} by itself; see $LOGS"
    now=$(cat "$LOGS/beat-$rank" 2> /dev/null)
    [ "$now" = "${beat[rank]-}" ] || beat_at[rank]=$SECONDS
    beat[rank]=$now
    [ $((SECONDS - ${beat_at[rank]:-$SECONDS})) -lt "$SFT_BEAT_S" ] ||
      { unlucky=1 && finish 1 "${nodes[rank]} has given no sign of life for $SFT_BEAT_S s"; }
  done
}

# in_image STEP COMMAND..: a step in the train image on the first node, as $work.
in_image() {
  local step=$1
  shift
  on "${nodes[0]}" "$step" "$CODE/slurm/image.sh" train "$LOGS/env" "$@"
  work=$!
}

# ready WHAT COMMAND: wait until a shell command in the image on the first node succeeds.
ready() {
  in_image ready bash -c "until $2; do sleep 1; done"
  while kill -0 "$work" 2> /dev/null; do
    nodes_alive
    helpers_alive
    [ "$SECONDS" -lt "$SFT_READY_S" ] || finish 1 "after $SFT_READY_S s not yet: $1"
    pause 1
  done
  wait "$work" || finish 1 "the probe failed: $1; see $LOGS/ready.log"
  work=
  say "$1"
}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
FROM=$(steps_done)
unlucky= # set where no fault of the job ends it
# Long before the limit USR1 says that the job is preempted (PreemptParameters=send_user_signal).
# shellcheck disable=SC2329  # by the trap
warned() {
  local left
  left=$(seconds_left)
  [ "${left:-900}" -ge 900 ] || finish 75 "the time limit is near"
  unlucky=1
  finish 75 "preempted"
}
trap warned USR1
trap 'finish 143 "scancel or preemption"' TERM
say "job $SLURM_JOB_ID, start $((RESTART + 1)), on ${nodes[*]}: from step $FROM of $TARGET; logs in $LOGS"
lost=$(lost_starts "$FROM")
quoted=$(printf ',"%s"' "${nodes[@]}")
printf '{"job":"%s","restart":%d,"from":%d,"nodes":[%s],"at":"%(%FT%T%z)T"}\n' "$SLURM_JOB_ID" "$RESTART" "$FROM" "${quoted:1}" -1 >> "$RUN/slurm/starts.jsonl"
sed -e "s/^ \"job\": .*/ \"job\": \"$SLURM_JOB_ID\",/" -e "s/^ \"nodes\": .*/ \"nodes\": [${quoted:1}],/" "$RUN/job.json" > "$RUN/job.json.$$.tmp" &&
  mv "$RUN/job.json.$$.tmp" "$RUN/job.json"
[ "$FROM" -lt "$TARGET" ] || finish 0 "nothing is left to train"
[ "$lost" -lt 4 ] || finish 1 "$lost starts from step $FROM lost a node: the job may be what ends them"
[ "${#nodes[@]}" = "$SFT_NODES" ] || finish 78 "the recipe wants $SFT_NODES nodes, the job has ${#nodes[@]}"
[ ${#TMP} -le 44 ] || finish 78 "DECKSMITH_TMP is too long: a socket's path of Ray below $TMP would pass 107 characters"
# Each node has its own: nodes need not share DECKSMITH_TMP.
# shellcheck disable=SC2016  # of the nodes' shell
everywhere 120 bash -c 'RUN=$1; . "$RUN/snapshot/slurm/lib.sh" && own_tmp' - "$RUN" > "$LOGS/tmp.log" 2>&1 ||
  finish 69 "$TMP is not ours on every node ($LOGS/tmp.log); name another folder: DECKSMITH_TMP in slurm/site.env"
NAME=ds$SLURM_JOB_ID
enter train "$NAME" "$APPTAINER_BIND,$TMP"
if [ ${#ENTER[@]} -gt 0 ]; then
  everywhere "$SFT_READY_S" "${ENTER[@]}" true > "$LOGS/container.log" 2>&1 || finish 69 "Pyxis gives no container; see $LOGS/container.log"
  say "a container on each node"
fi
IP=$(node_ip "${nodes[0]}")
[ -n "$IP" ] || finish 69 "no address for ${nodes[0]}${DECKSMITH_NET:+ on the network DECKSMITH_NET=$DECKSMITH_NET of slurm/site.env}"
case ${DECKSMITH_NET:-*} in *'*'*) ;; *) : "${NCCL_SOCKET_IFNAME:=$DECKSMITH_NET}" "${GLOO_SOCKET_IFNAME:=$DECKSMITH_NET}" ;; esac
before_ray

# A block of ports below the ephemeral range, the first in which nobody answers. Every port of Ray is named: two nodes that share a
# host (tests) must not meet.
for try in {0..9}; do
  base=$((11000 + (SLURM_JOB_ID + $(cksum <<< "$RUN" | cut -d' ' -f1) + try) % 10 * 2000))
  (: < "/dev/tcp/$IP/$base") 2> /dev/null || break
done

# What the processes in the image are told. Slurm's and MPI's own variables stay outside. Without RAY_ADDRESS, NeMo-RL would silently start
# a cluster of its own.
export RAY_ADDRESS=$IP:$base
export HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-16}" NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
export TMPDIR="$TMP" XDG_CACHE_HOME="$TMP/cache" TRITON_CACHE_DIR="$TMP/triton" TORCHINDUCTOR_CACHE_DIR="$TMP/inductor"
export PYTHONNOUSERSITE=1 RAY_USAGE_STATS_ENABLED=0 RAY_ENABLE_UV_RUN_RUNTIME_ENV=0
# Without a token everybody on the network may run code on this Ray; versions before 2.52 know no tokens and pass over it.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
mkdir -p "$RUN/home"
(umask 077 # tokens may stand in there
  for name in $GIVEN ${NCCL_SOCKET_IFNAME+NCCL_SOCKET_IFNAME} ${GLOO_SOCKET_IFNAME+GLOO_SOCKET_IFNAME} RAY_ADDRESS HF_HOME HF_HUB_OFFLINE OMP_NUM_THREADS NCCL_DEBUG TMPDIR XDG_CACHE_HOME TRITON_CACHE_DIR \
    TORCHINDUCTOR_CACHE_DIR PYTHONNOUSERSITE RAY_USAGE_STATS_ENABLED RAY_ENABLE_UV_RUN_RUNTIME_ENV RAY_AUTH_MODE RAY_AUTH_TOKEN; do
    printf '%s=%q\n' "$name" "${!name}"
  done > "$LOGS/env")

# start RANK FLAG..: Ray on one node.
start() {
  local rank=$1 step="ray-worker-$1" first=$((base + $1 % 2 * 1000))
  shift
  [ "$rank" != 0 ] || step="ray-head"
  # shellcheck disable=SC2086  # RAY_FLAGS is words
  on "${nodes[rank]}" "$step" "$CODE/slurm/ray-node.sh" "$RUN" "$rank" "$@" --node-ip-address="$(node_ip "${nodes[rank]}")" \
    --node-manager-port=$((first + 1)) --object-manager-port=$((first + 2)) --metrics-export-port=$((first + 3)) \
    --runtime-env-agent-port=$((first + 4)) --dashboard-agent-listen-port=$((first + 5)) --dashboard-agent-grpc-port=$((first + 6)) \
    --min-worker-port=$((first + 10)) --max-worker-port=$((first + 999)) ${RAY_FLAGS-}
  steps[rank]=$!
}

ray=$NEMO_RL_VENV/bin/ray
start 0 --head --port="$base" --include-dashboard=false --temp-dir="$TMP/r"
ready "Ray's head answers at $RAY_ADDRESS" "$ray health-check --address $RAY_ADDRESS"
# From every node, before the others wait for it in vain.
# shellcheck disable=SC2016  # of the nodes' shell
deaf=$(everywhere 60 bash -c 'timeout 10 bash -c ": < /dev/tcp/$0/$1" "$0" "$1" 2> /dev/null || hostname' "$IP" "$base" | paste -sd ' ')
[ -z "$deaf" ] || finish 69 "$deaf cannot reach ${nodes[0]} at $RAY_ADDRESS: name another network (DECKSMITH_NET in slurm/site.env), or have the site open it"
for rank in "${!nodes[@]}"; do [ "$rank" = 0 ] || start "$rank" --address="$RAY_ADDRESS"; done
gpus=$((SFT_NODES * SFT_GPUS))
ready "Ray has $gpus GPUs on ${#nodes[@]} nodes" "$ray status | grep -F '/$gpus.0 GPU'"

left=$(seconds_left)
save_by=
if [ -n "$left" ]; then
  limit=$((left - SFT_SETUP_S - SFT_SAVE_S))
  [ "$limit" -gt 0 ] || finish 78 "$left s are left of the time limit; setting up and saving take $((SFT_SETUP_S + SFT_SAVE_S)) s (SFT_SETUP_S, SFT_SAVE_S)"
  save_by=$(printf '%02d:%02d:%02d:%02d' $((limit / 86400)) $((limit / 3600 % 24)) $((limit / 60 % 60)) $((limit % 60)))
fi
# The parents that the recipe names lie where NeMo-RL does.
sed "s|/opt/nemo-rl/|$NEMO_RL_HOME/|" "$CODE/recipe.yaml" > "$LOGS/recipe.yaml"
cat > "$LOGS/driver.sh" << DRIVER
cd '$NEMO_RL_HOME'
exec '$NEMO_RL_VENV/bin/python' $SFT_DRIVER --config '$LOGS/recipe.yaml' ${save_by:+++checkpointing.checkpoint_must_save_by=$save_by}
DRIVER
: > "$LOGS/driver.log" # its age is watched from now on
in_image driver sh "$LOGS/driver.sh"
say "driver started${save_by:+, to save after $save_by of training}"

while kill -0 "$work" 2> /dev/null; do
  nodes_alive
  helpers_alive
  heard=$(stat -c %Y "$LOGS/driver.log" "$CHECKPOINTS" 2> /dev/null | sort -n | tail -n 1)
  [ $(($(date +%s) - heard)) -lt "$SFT_STALL_S" ] || finish 1 "the driver has said nothing for $SFT_STALL_S s"
  now=$(steps_done)
  [ "$now" = "${seen:=$FROM}" ] || say "checkpoint at step $now of $TARGET"
  seen=$now
  pause 2
done
wait "$work"; status=$?
work=
reason="the driver ended with $status"
# A node that died takes the driver along: say so.
[ "$status" = 0 ] || for node in "${nodes[@]}"; do
  timeout 30 srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" true < /dev/null > /dev/null 2>&1 || { reason="$reason; $node does not answer" unlucky=1; }
done
finish "$status" "$reason"
