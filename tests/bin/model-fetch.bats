# marks: slow
load ../helper

# What a Hub answers and how a fetch goes on: tests/hub/test_models.py.
setup() {
  export HF_HOME=$PWD/hub HF_HUB_OFFLINE=1
}

@test "a model that is not there and the Hub switched off: the sentence says where it would be and what to do" {
  run model-fetch nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
  assert_failure 69
  assert_output "model-fetch: nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 is not in $HF_HOME/hub, and HF_HUB_OFFLINE is set: no question goes to the Hub; where it is reached, run: HF_HUB_OFFLINE=0 bin/model-fetch nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
  run model-fetch --check lab/base
  assert_failure 69
  assert_output "model-fetch: lab/base is not in $HF_HOME/hub (it lacks all of it), and jobs do not ask the Hub; run: bin/model-fetch lab/base"
}

# marks: long
# first: a model that is not there and the Hub switched off: the sentence says where it would be and what to do
@test "the embedded model and a folder need no fetch" {
  run model-fetch smol
  assert_success
  assert_output "model-fetch: smol is no model of the Hub; nothing is to be fetched"
  run model-fetch "$FIXTURES/sft/thinker"
  assert_success
}

# marks: long
# first: a model that is not there and the Hub switched off: the sentence says where it would be and what to do
@test "the cache is HF_HOME of the environment, else that of slurm/site.env, else the checkout's own" {
  mkdir -p house/slurm
  for name in bin lib assets .venv; do ln -s "$ROOT/$name" house; done
  export DECKSMITH_ROOT=$PWD/house SCRATCH=/scratch/me
  unset HF_HOME
  run model-fetch --check lab/base
  assert_output --partial "is not in $PWD/house/data/huggingface/hub ("
  echo 'HF_HOME="$SCRATCH/models"' > house/slurm/site.env
  run model-fetch --check lab/base
  assert_output --partial "is not in /scratch/me/models/hub ("
  HF_HOME=/mine run model-fetch --check lab/base
  assert_output --partial "is not in /mine/hub ("
}
