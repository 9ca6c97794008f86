# marks: slow
load ../helper

# Stand-ins for Slurm's commands, which this machine may not have; tests/slurm has the real ones.
setup() {
  mkdir commands run
  export PATH=$PWD/commands:$PATH LOG=$PWD/calls DECKSMITH_POLL_S=0.1
  cat > commands/sbatch <<'SH'
#!/bin/sh
printf '%s|' "$@" >> "$LOG"; echo "account=$SBATCH_ACCOUNT" >> "$LOG"
echo '41;cluster'
SH
  cat > commands/scontrol <<'SH'
#!/bin/sh
[ -f "$LOG" ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
echo "JobId=41 JobState=$(cat state) ExitCode=4:0 Restarts=0 Reason=None WorkDir=$PWD/run StdOut=$PWD/run/slurm/x.out"
echo FAILED > state
SH
  chmod +x commands/*
  echo RUNNING > state
  cat > recipe.yaml <<YAML
policy: {model_name: /no/such/file}
cluster: {num_nodes: 2, gpus_per_node: 8}
sft: {max_num_steps: 44, seed: 7}
checkpointing: {checkpoint_dir: $PWD/run/checkpoints}
data: {train: {data_path: $PWD/v0.1/train.jsonl}}
YAML
  mkdir v0.1
  printf '{"id":"a"}\n{"id":"b"}\n' > v0.1/train.jsonl
  # A checkout of the test's own, in which the train image is built.
  mkdir -p here/bin here/lib here/slurm here/containers
  ln -s "$ROOT/.venv" here/.venv
  cp "$ROOT"/bin/{within,job-submit} here/bin
  cp "$ROOT/pyproject.toml" here
  cp "$ROOT/containers/need" here/containers
  cp -r "$ROOT/lib/decksmith" here/lib
  cp -r "$ROOT"/slurm/* here/slurm
  touch here/containers/train.sif
  export DECKSMITH_ROOT=$PWD/here
}

# shellcheck disable=SC2119,SC2120
submit() { here/bin/job-submit here/slurm/sft.sbatch --run run "$@"; }

@test "freezes code, recipe and data, submits that, and prints the job's number" {
  cp recipe.yaml run/
  run submit --env "NOTE=it's" -- --time=01:00:00
  assert_success
  assert_output 41
  here=$(pwd -P)/run
  assert_equal "$(cat calls)" "--parsable|--job-name=sft-run|--chdir=$here|--output=$here/slurm/%x-%j.out|--nodes=2|--gres=gpu:8|--time=01:00:00|$here/snapshot/slurm/sft.sbatch|$here|account="
  cmp run/snapshot/lib/decksmith/train/training/jobs.py "$ROOT/lib/decksmith/train/training/jobs.py"
  cmp run/snapshot/data/v0_1/train.jsonl v0.1/train.jsonl
  assert_equal "$(cat run/snapshot/job.env)" "DECKSMITH_HOME=$(pwd -P)/here
SFT_CHECKPOINTS=$here/checkpoints
SFT_STEPS=44
SFT_NODES=2
SFT_GPUS=8
SFT_DRIVER=examples/run_sft.py
NOTE='it'\"'\"'s'"
  grep -q "data_path: $here/snapshot/data/v0_1/train.jsonl" run/snapshot/recipe.yaml
  [ -x run/snapshot/.venv/bin/python3 ]
  assert_equal "$("$ROOT/.venv/bin/python3" -c 'import json; r = json.load(open("run/job.json")); print(r["job"], r["seeds"], r["recipe"]["steps"], r["env"])')" \
    "None {'sft.seed': 7} 44 {'NOTE': \"it's\"}"
}

# marks: long
# first: freezes code, recipe and data, submits that, and prints the job's number
@test "a job whose base model was never fetched is not submitted, and the command that fetches it is named" {
  sed 's|/no/such/file|lab/base|' recipe.yaml > run/recipe.yaml
  for name in model-fetch; do cp "$ROOT/bin/$name" here/bin; done
  mkdir -p here/assets/recipes models/hub/models--lab--base/{refs,snapshots/c1}
  cp "$ROOT"/assets/recipes/revisions.toml here/assets/recipes
  # Of this shell the job sees nothing, of its site all.
  HF_HOME=$PWD/models run submit
  assert_failure 69
  assert_output --partial "job-submit: not submitted: model-fetch: lab/base is not in $(pwd -P)/here/data/huggingface/hub (it lacks all of it)"
  [ ! -e calls ]
  echo "HF_HOME=$PWD/models" > here/slurm/site.env
  printf c1 > models/hub/models--lab--base/refs/main
  touch models/hub/models--lab--base/snapshots/c1/{config.json,tokenizer.json,model.safetensors}
  run submit
  assert_success
  assert_output 41
}

# marks: long
# first: tests/training/test_jobs.py::test_a_job_ends_as_its_state_says
@test "--wait copies the log and ends as the job did; a job under way is followed, not doubled" {
  cp recipe.yaml run/
  submit
  mkdir -p run/slurm
  printf 'a line\n' > run/slurm/x.out
  run --separate-stderr submit
  assert_failure 75
  assert_equal "$stderr" 'job-submit: job 41 of this run has not ended; follow it: the same command with --wait; stop it: scancel 41'
  echo RUNNING > state
  run --separate-stderr submit --wait
  assert_failure 4
  assert_output 'a line'
  assert_equal "$(wc -l < calls)" 1
}

# marks: long
# first: freezes code, recipe and data, submits that, and prints the job's number
@test "a dry run says what would be submitted, and writes nothing" {
  cp recipe.yaml run/
  run submit --dry-run --env "NOTE=mine" -- --time=01:00:00
  assert_success
  assert_line --regexp '^command +sbatch --parsable .*--time=01:00:00 '
  assert_line --regexp '^NOTE +mine$'
  assert_line --regexp '^data +\{"data/v0_1/train.jsonl": "[0-9a-f]{64}"\}$'
  assert_line --regexp '^seeds +\{"sft.seed": 7\}$'
  assert_equal "$(ls run)" recipe.yaml
  [ ! -e calls ]
}

# marks: long
# first: a secret is taken neither by argument nor into the snapshot
@test "site.env's account reaches sbatch, and the environment's is stronger" {
  cp recipe.yaml run/
  echo 'SBATCH_ACCOUNT=physics' > here/slurm/site.env
  submit
  rm run/slurm/job
  SBATCH_ACCOUNT=mine submit
  assert_equal "$(sed 's/.*|//' calls)" 'account=physics
account=mine'
}

@test "a secret is taken neither by argument nor into the snapshot" {
  cp recipe.yaml run/
  run submit --env HF_TOKEN=hf_0123456789abcdef
  assert_failure 78
  assert_output 'job-submit: --env HF_TOKEN: a secret does not travel by argument or in a snapshot; write it into .env of the checkout where the job runs (mode 600), which jobs read'
  [ ! -e run/snapshot ] && [ ! -e calls ]
  echo 'SBATCH_ACCOUNT=physics' > here/slurm/site.env
  submit
  assert_equal "$(stat -c %a run/snapshot/slurm/site.env)" 600
  assert_equal "$(sed 's/.*|//' calls)" 'account=physics'
}

# marks: long
# first: freezes code, recipe and data, submits that, and prints the job's number
@test "what is missing is named with its remedy" {
  run submit
  assert_failure 69
  assert_output "job-submit: $(pwd -P)/run/recipe.yaml is not there; sft-config --run $(pwd -P)/run writes it"
  cp recipe.yaml run/
  rm here/containers/train.sif
  run submit
  assert_failure 69
  assert_output "job-submit: $(pwd -P)/here/containers/train.sif is not there; make image-train"
  echo 'CONTAINER=pyxis' > here/slurm/site.env
  run submit
  assert_failure 69
  assert_output "job-submit: $(pwd -P)/here/containers/train.sqsh is not there; enroot import -o $(pwd -P)/here/containers/train.sqsh 'docker://..' (docs/cluster.md)"
  echo "TRAIN_IMAGE=$PWD/mine.sqsh" >> here/slurm/site.env
  run submit
  assert_failure 69
  assert_output --partial "job-submit: $PWD/mine.sqsh is not there"
  echo 'CONTAINER=none' > here/slurm/site.env
  run submit
  assert_success
  run here/bin/job-submit here/slurm/nothing.sbatch --run run
  assert_failure 69
  sed -i 's/max_num_steps: 44/max_num_steps: "???"/' run/recipe.yaml
  run submit
  assert_failure 78
  assert_output "job-submit: $(pwd -P)/run/recipe.yaml: sft.max_num_steps is '???'; it must be a int from 1; sft-config writes it"
}

# marks: long
# first: freezes code, recipe and data, submits that, and prints the job's number
@test "every #SBATCH line has its reason in a comment above it, and none names a cluster" {
  for script in "$ROOT"/slurm/*.sbatch; do
    run awk '/^# / { reason = 1 } !/^#/ { reason = 0 } /^#SBATCH/ && !reason { print FILENAME ": " $0 }' "$script"
    assert_output ''
    run grep -nE '^#SBATCH.*(account|partition|qos|mail)' "$script"
    assert_output ''
  done
}
