# marks: slow
load ../helper

rows() {
  for n in $(seq "$1" "$2"); do
    echo '{"id":"s'$n'","messages":[{"role":"system","content":"You write."},{"role":"user","content":"Deck '$n'"},{"role":"assistant","content":"# '$n'","reasoning_content":"So '$n'."}]}'
  done
}

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  mkdir chat
  rows 1 40 > chat/train.jsonl
  rows 41 57 > chat/test.jsonl
  sft-config --data chat --run run > /dev/null
}
setup() {
  export HF_HUB_OFFLINE=1 HF_HOME=$BATS_TEST_TMPDIR/hub
  cp -r "$BATS_FILE_TMPDIR/." .
  sed -i "s|$BATS_FILE_TMPDIR/|$PWD/|" run/recipe.yaml
  THINKER=$FIXTURES/sft/thinker
}

@test "a sound run passes with a table and one object; the preview brackets what is trained" {
  run --separate-stderr sft-check --run run --tokenizer "$THINKER" --preview 1
  assert_success
  [ "${#lines[@]}" = 1 ]
  [[ $output == *'"ok": true'*'"reasoned": 40'*'"steps": 4'*'"trainable": 181747712'* ]]
  said=$stderr
  output=$stderr
  assert_output --partial "steps              4 = 2 epochs x floor(40 / 16), 8 rows left over in each"
  assert_output --partial "sft-check: nothing speaks against this run"
  assert_equal "$(head -9 <<< "$said")" "s1
<|im_start|>system
You write.<|im_end|>
<|im_start|>user
Deck 1<|im_end|>
<|im_start|>assistant
<think>
[[So 1.
</think>"
}

# marks: long
# first: a sound run passes with a table and one object; the preview brackets what is trained
@test "on a terminal the preview colours what is trained" {
  run python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))' "$BIN/sft-check" --run run --tokenizer "$THINKER" --preview 1
  assert_output --partial $'\e[32mSo 1.'
  refute_output --partial '[['
}

# marks: long
# first: a sound run passes with a table and one object; the preview brackets what is trained
@test "each failure is a line with file, line, id and remedy, and the exit is 65" {
  sed -i '5s/So 5\.//; 7s/"s7"/7/' run/data/train.jsonl
  sed -i 's/max_grad_norm/max_gradient_norm/; s/save_period: 2/save_period: 3/' run/recipe.yaml
  run --separate-stderr sft-check --run run --tokenizer "$THINKER"
  assert_failure 65
  output=$(grep '^sft-check' <<< "$stderr" | sed "s|$PWD/||; s/yaml:[0-9]*/yaml:N/; s/; .*//")
  assert_output "sft-check: run/recipe.yaml:N: unknown-key: policy.max_gradient_norm is no key of NeMo-RL v0.7.0's SFT
sft-check: run/data/train.jsonl:5: s5: reasoning: no reasoning, and the prompt asks for it
sft-check: run/data/train.jsonl:5: s5: pieces: at character 103 '\n</think># 5<|im_end|>\n' is trained where the template has '</think># 5<|im_end|>\n'
sft-check: run/data/train.jsonl:7: json: not as sft-config writes it (no usable \"id\" (letters, digits, '.', '_', '~', '-'
sft-check: run/recipe.yaml:N: periods: a save every 3 steps and a validation every 2: a save without its loss"
}

# marks: long
# first: tests/training/test_preflight.py::test_without_a_tokenizer_all_else_is_checked_and_the_rest_is_named
@test "without the model's tokenizer the rest is checked, and the exit says what is missing" {
  run --separate-stderr sft-check --run run
  assert_failure 69
  [[ $output == *'"rows": {"train": 40'* ]]
  output=$stderr
  assert_output --partial "not checked        everything that needs the tokenizer"
  assert_output --partial "or give --tokenizer DIR"
  sed -i '7s/"s7"/7/' run/data/train.jsonl
  run sft-check --run run
  assert_failure 65
}

# marks: long
# first: tests/bin/job-submit.bats::freezes code, recipe and data, submits that, and prints the job's number
@test "tokenizer without weights: what a job would lack is said, with the command, unless it runs elsewhere" {
  snapshot=$HF_HOME/hub/models--lab--base/snapshots/c1
  mkdir -p "$snapshot" "$HF_HOME/hub/models--lab--base/refs"
  cp "$THINKER"/* "$snapshot"
  echo "{}" > "$snapshot/config.json"
  printf c1 > "$HF_HOME/hub/models--lab--base/refs/main"
  sft-config --data chat --run run policy.model_name=lab/base > /dev/null
  run --separate-stderr sft-check --run run
  assert_failure 69
  assert_equal "$(tail -n 1 <<< "$stderr")" "sft-check: lab/base is not in $HF_HOME/hub (it lacks model.safetensors), and jobs do not ask the Hub; run: bin/model-fetch lab/base"
  run sft-check --run run --elsewhere
  assert_success
  touch "$snapshot/model.safetensors"
  run sft-check --run run
  assert_success
}

# marks: long
# first: a sound run passes with a table and one object; the preview brackets what is trained
@test "a run that sft-config has not written is missing" {
  run sft-check --run nothing
  assert_failure 69
  assert_output --partial "there is no"
}
