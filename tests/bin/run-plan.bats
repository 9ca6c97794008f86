# marks: simulation
load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  synthetic_runs "$RUNS" 24 "$RUNS/few" 3
}

@test "prints how a difference varies, and designs with what they find and cost" {
  run --separate-stderr run-plan --effect 0.1 "$RUNS/smol" "$RUNS/smol-sft"
  assert_success
  assert_line --index 0 --regexp '^Planned from SmolLM2 135M and SmolLM2 135M \(fine-tuned\): [0-9]+ shared prompts whose decks render\. Both .* render for [0-9]+ % of prompts; .* a standard deviation of [0-9.]+ points'
  assert_line --regexp '^\*\*To find a difference of 10\.0 points\*\*, the cheapest design is [0-9]+ prompts: price \$0\.[0-9]+, time [0-9]+ s\.$'
  assert_line '| Prompts | Renders | Checks passed | Enough | Requests | Price | Time |'
}

# marks: long
# first: prints how a difference varies, and designs with what they find and cost
@test "an effect that is no share is refused" {
  run run-plan --effect 1.5 "$RUNS/smol-sft"
  assert_failure 65
  assert_output --partial 'a difference of shares is below 1; 0.05 are 5 points of the checks'
}

# marks: long
# first: tests/results/test_power.py::test_one_model_is_said_to_give_an_upper_bound
@test "one run gives an upper bound and says so" {
  run run-plan "$RUNS/smol-sft"
  assert_success
  assert_line --partial 'every difference shown is an upper bound'
  refute_output --partial 'To find a difference'
}

# marks: long
# first: prints how a difference varies, and designs with what they find and cost
@test "too few prompts are refused in one line" {
  run run-plan "$RUNS/few/smol-sft"
  assert_failure 65
  assert_line --regexp '^run-plan: SmolLM2 135M \(fine-tuned\): [0-3] prompts? that render; a plan needs at least 6$'
}

# marks: long
# first: prints how a difference varies, and designs with what they find and cost
@test "a run that is not there is named" {
  run run-plan results/runs/nobody
  assert_failure 69
  assert_output 'run-plan: there is no run results/runs/nobody; `make baseline MODEL=nobody` makes it'
}

# marks: long
# first: prints how a difference varies, and designs with what they find and cost
@test "--register writes the comparison to come into its folders, and refuses once a reply is there" {
  for model in smol base; do
    mkdir -p "runs/$model/journal"
    head -n 3 "$ROOT/data/prompts.jsonl" > "runs/$model/prompts.jsonl"
  done
  run run-plan --register runs/smol runs/base
  assert_success
  run jq -c '[.n, .measure, (.models | map(.name)), .protocol.protocol]' runs/base/registered.json
  assert_output '[3,"checks",["smol","base"],"offline"]'
  echo '{"id":"p001"}' > runs/smol/journal/gen.jsonl
  run run-plan --register runs/smol runs/base
  assert_failure 65
  assert_output --partial 'run-plan: runs/smol/journal/gen.jsonl: replies are there already'
}
