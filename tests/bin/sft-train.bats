# marks: slow
load ../helper

@test "says what it does, how it is piped and what ends it" {
  run sft-train --help
  assert_success
  assert_line --index 0 'Train a LoRA adapter on this machine by TRL, on a CUDA GPU where there is one, else on the CPU; NeMo-RL'"'"'s recipe keys and checkpoints.'
  assert_output --partial 'SIGTERM, SIGUSR1, Ctrl-C and the recipe'"'"'s checkpoint_must_save_by save and exit with 75.'
}

# marks: long
# first: says what it does, how it is piped and what ends it
@test "without a recipe it names the command that writes one" {
  run sft-train --run nowhere
  assert_failure 69
  assert_output 'sft-train: there is no nowhere/recipe.yaml; sft-config --run nowhere writes it'
}

# marks: long
# first: says what it does, how it is piped and what ends it
@test "a base model that is not there ends it before anything is trained" {
  mkdir run
  printf 'policy: {model_name: ./no-such-model, train_global_batch_size: 1, train_micro_batch_size: 1}\nsft: {}\n' > run/recipe.yaml
  HF_HUB_OFFLINE=1 run sft-train --run run
  assert_failure 69
  assert_output --partial 'sft-train: ./no-such-model: no such folder'
}
