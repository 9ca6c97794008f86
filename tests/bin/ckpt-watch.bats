# marks: slow
load ../helper

# A finished checkpoint, as both trainers leave it.
checkpoint() {
  mkdir -p "run/checkpoints/tmp_step_$1/policy/weights/model"
  echo "weights of $1" > "run/checkpoints/tmp_step_$1/policy/weights/model/adapter_model.safetensors"
  echo "{\"total_steps\": $1, \"val:val_loss\": 2.5}" > "run/checkpoints/tmp_step_$1/training_info.json"
  mv "run/checkpoints/tmp_step_$1" "run/checkpoints/step_$1"
}

setup() {
  mkdir run
  echo 'sft: {max_num_steps: 20}' > run/recipe.yaml
  checkpoint 10
  checkpoint 20
}

@test "each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run" {
  run --separate-stderr ckpt-watch --every 0.05 run -- sh -c 'echo "{\"gsm8k\": {\"pass@1\": {\"symbolic_correct\": 0.$CKPT_STEP}}}"'
  assert_success
  run jq -c '[.step, .metrics.gsm8k["pass@1"].symbolic_correct, .val_loss]' <<< "$output"
  assert_output '[20,0.2,2.5]
[10,0.1,2.5]'
  run jq .step run/curve/curve.jsonl
  assert_output '10
20'
  [ -s run/curve/curve.png ] && [ -s run/curve/curve.svg ]
  run --separate-stderr ckpt-watch --every 0.05 run -- false
  assert_success
  assert_output ""
  assert_equal "$stderr" "ckpt-watch: 2 of 2 checkpoints are on the curve, $PWD/run/curve/curve.png"
}

# marks: long
# first: each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run
@test "a checkpoint that fails for good is a gap, the exit is 75, and what it said is in its log" {
  run --separate-stderr ckpt-watch --once --every 0.05 run -- sh -c '[ $CKPT_STEP = 10 ] || { echo "no engine" >&2; exit 69; }; echo "{\"a\": 0.5}"'
  assert_failure 75
  said=$(tail -n 1 <<< "$stderr")
  run jq -c '[.step, .gap, .message]' <<< "$output"
  assert_output '[10,null,null]
[20,"failed","ended with status 69: no engine"]'
  assert_equal "$said" "ckpt-watch: 1 of 2 checkpoints are on the curve, $PWD/run/curve/curve.png; gaps: 20 (failed)"
  assert_equal "$(cat run/curve/step_20.log)" "no engine
no engine
no engine"
}

# marks: long
# first: each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run
@test "a run that is not there is named" {
  run ckpt-watch --once none -- true
  assert_failure 69
  assert_output --partial "ckpt-watch: there is no $PWD/none"
}

# marks: long
# first: each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run
@test "a wrong command and no command are told apart" {
  run ckpt-watch --once run -- no-such-command
  assert_failure 78
  assert_output --partial "the command is not there (status 127)"
  run ckpt-watch run
  assert_failure 2
}
