load ../helper

setup() {
  mkdir -p hub/trillionlabs/slides-sft-v0
  for i in 1 2; do
    echo "{\"seed_id\":\"seed/$i\",\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"Ask $i\"},{\"role\":\"assistant\",\"content\":\"the answer\"}]}"
  done > hub/trillionlabs/slides-sft-v0/test.jsonl
  export HF_HOME=$PWD/hf HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_XET=1
}

start_hub() {
  "$ROOT/.venv/bin/python3" "$ROOT/tests/hub.py" hub > hub.url &
  HUB=$!
  for _ in $(seq 100); do [ -s hub.url ] && break; sleep 0.1; done
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
  [[ $stderr == *"to pin it: revision = \"$commit\""* ]]
}

@test "without a network it exits 75 with one line" {
  HF_ENDPOINT=http://127.0.0.1:9 run bench-prepare published
  assert_failure 75
  assert_output --regexp '^bench-prepare: published: the Hub did not answer: '
}

@test "a dataset that is not there exits 69 and says how gated ones are reached" {
  rm -r hub/trillionlabs
  start_hub
  run bench-prepare published
  assert_failure 69
  assert_output --partial 'the Hub has no public dataset trillionlabs/slides-sft-v0'
}

@test "an unknown benchmark exits 78 and names those there are" {
  run bench-prepare nothing
  assert_failure 78
  assert_output --partial 'there are: '
}
