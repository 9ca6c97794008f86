load ../helper

# marks: slow
@test "a recipe that sft-config wrote is judged in a table, lines with what to do, and one object; 65" {
  mkdir -p data
  jq -c 'select(.id <= "p040")' "$ROOT/data/prompts.jsonl" > data/train.jsonl
  jq -c 'select(.id > "p040" and .id <= "p046")' "$ROOT/data/prompts.jsonl" > data/test.jsonl
  echo '{"id":"p001~0","gen":{"sample":{"of":"p001","k":0}},"reward":{"reward":0.5,"masked":false}}' > planted.jsonl
  sft-config --recipe nemotron-nano-grpo --base "$FIXTURES/sft/thinker" --data data --run run
  run --separate-stderr rl-check --run run --planted planted.jsonl --pace 60 --lexical
  assert_failure 65
  assert_equal "$(jq -c '[.ok, .rollouts, .counts["held-out"], .planted.prompts]' <<< "$output")" '[false,128,40,1]'
  [[ $stderr == *"rewards            128.0 s a step at 60 decks a minute"* ]]
  [[ $stderr == *"rl-check: $PWD/run/data/train.jsonl:1: p001: held-out: near p001 of an evaluation; leave the prompt out: what an evaluation asks is no training"* ]]
}

# marks: long
# first: a recipe that sft-config wrote is judged in a table, lines with what to do, and one object; 65
@test "a recipe of SFT, and a planted sample that is not there, are one sentence" {
  mkdir -p run
  echo 'sft: {max_num_steps: 1}' > run/recipe.yaml
  echo '{"id":"a"}' > planted.jsonl
  run rl-check --run run --planted planted.jsonl --pace 60 --lexical --tokenizer "$FIXTURES/sft/thinker"
  assert_failure 78
  assert_output "rl-check: run/recipe.yaml is of SFT; sft-check judges it"
  run rl-check --run run --planted nothing.jsonl --pace 60
  assert_failure 2
  assert_output --partial "nothing.jsonl"
}
