# marks: slow
load ../helper

# Rows of about 1.5 kB, so that each file is an upload of its own on this Hub.
setup() {
  mkdir data
  rows() { for i in $(seq "$1" "$2"); do
    printf '{"id":"s%s","messages":[{"role":"user","content":"Ask %s"},{"role":"assistant","content":"%01500d","reasoning_content":"Why"}],"seed":{"theme":"seriph","outline":%s,"features":[]},"overlap":{"cluster":"s%s","near":%s},"tokens":{"total":%s,"estimated":true},"by":{}}\n' \
      "$i" "$i" "$i" "$([ $((i % 2)) = 0 ] && echo '["a"]' || echo null)" "$i" "$([ $i = 3 ] && echo '[{"id":"x","ngram":0.7}]' || echo '[]')" "$((i * 10))"
  done; }
  rows 1 6 > data/train.jsonl
  rows 7 10 > data/test.jsonl
  echo '{"licence":"apache-2.0"}' > data/report.json
  export HF_HOME=$PWD/hf HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_TOKEN=hf_ann_writes
  unset HF_HUB_OFFLINE
}

start_hub() {
  "$ROOT/.venv/bin/python3" "$ROOT/tests/hub.py" hub > hub.url &
  HUB=$!
  await [ -s hub.url ]
  HF_ENDPOINT=$(cat hub.url)
  export HF_ENDPOINT
}

teardown() { [ -z "${HUB:-}" ] || kill "$HUB" 2>/dev/null || true; }

commits() { grep -c "^POST /api/datasets/lab/decks/commit/" hub/.log || true; }

@test "a dry run changes nothing there and prints what a push would send, and the card; a push says where it is as JSON and never the token" {
  start_hub
  run --separate-stderr hub-push data --repo lab/decks
  assert_success
  assert_line --index 0 "$HF_ENDPOINT/datasets/lab/decks (dataset, as ann): not there, or not for ann to see; --push makes it"
  assert_line --regexp "^  train.jsonl  [0-9,]+ bytes\$"
  assert_line 'the card: data/card/README.md'
  [ "$stderr" = 'hub-push: a dry run: nothing was sent; --push sends it' ]
  run ! grep -v '^GET ' hub/.log
  [ ! -e hub/lab ] && grep -q '^license: apache-2.0$' data/card/README.md
  run --separate-stderr hub-push data --repo lab/decks --push
  assert_success
  commit=$(LC_ALL=C; cat hub/lab/decks/.gitattributes hub/lab/decks/[!.]* | sha1sum | cut -d' ' -f1)
  assert_output "{\"url\": \"$HF_ENDPOINT/datasets/lab/decks\", \"revision\": \"$commit\"}"
  [[ $stderr == *"  test.jsonl  "* && $stderr != *hf_ann* ]]
  [ -e hub/.private/lab/decks ] && [ "$(commits)" = 1 ]
}

# marks: long
# first: a dry run changes nothing there and prints what a push would send, and the card; a push says where it is as JSON and never the token
@test "what was pushed loads with datasets" {
  start_hub
  commit=$(hub-push data --repo lab/decks --push 2> /dev/null | jq -r .revision)
  run --separate-stderr "$ROOT/.venv/bin/python3" -c "
import json, sys, datasets
found = datasets.load_dataset('lab/decks', revision='$commit')
for split in ('train', 'test'):
    wanted = [json.loads(line) for line in open(f'data/{split}.jsonl')]
    for row in wanted:
        row['messages'][0]['reasoning_content'] = None
    assert list(found[split]) == wanted, (found[split][0], wanted[0])
print(found['train'].num_rows, found['test'].num_rows)"
  assert_output '6 4'
}

# marks: long
# first: tests/hub/test_repository.py::test_a_push_makes_a_private_repository_and_one_commit_and_a_second_push_none
@test "a push that is killed half way is completed by the next, one commit in all and nothing uploaded twice" {
  start_hub
  touch hub/.stall
  hub-push data --repo lab/decks --push > out.json 2> err.txt &
  half_way() { [ "$(find hub/.objects -type f 2> /dev/null | wc -l)" = 1 ] && [ "$(grep -c '^PUT' hub/.log)" = 2 ]; }
  await half_way
  done_once=$(ls hub/.objects)
  kill -9 $!
  [ "$(commits)" = 0 ] && [ "$(ls -A hub/lab/decks)" = .gitattributes ]
  rm hub/.stall
  run --separate-stderr hub-push data --repo lab/decks --push
  assert_success
  [ "$(commits)" = 1 ]
  [ "$(grep -c "^PUT /objects/$done_once" hub/.log)" = 1 ]
  for name in train.jsonl test.jsonl report.json card/README.md; do
    cmp "data/$name" "hub/lab/decks/${name#card/}"
  done
}

# marks: long
# first: tests/hub/test_repository.py::test_the_card_of_an_adapter_claims_what_the_claim_compiler_says
@test "an adapter is pushed with the sentence that run-compare says" {
  start_hub
  mkdir adapter
  for i in $(seq 20); do
    echo "{\"model\":\"base\",\"id\":\"p$i\",\"scores\":{\"design\":2},\"rendered\":true,\"error_kind\":null}"
    echo "{\"model\":\"tuned\",\"id\":\"p$i\",\"scores\":{\"design\":3.$((i % 2))},\"rendered\":true,\"error_kind\":null}"
  done > scores.jsonl
  run-compare --json scores.jsonl > adapter/comparison.json
  echo '{"peft_type":"LORA","r":8,"base_model_name_or_path":"lab/base"}' > adapter/adapter_config.json
  printf '\x02\0\0\0\0\0\0\0{}' > adapter/adapter_model.safetensors
  run --separate-stderr hub-push adapter --kind adapter --repo lab/decks --push
  assert_success
  sentence=$("$ROOT/.venv/bin/python3" -c 'import json; print(json.load(open("adapter/comparison.json"))["headlines"][0])')
  [[ $sentence == "The decks of "*"Where both render, tuned gets "* ]]
  grep -qxF -e "- $sentence" hub/models/lab/decks/README.md
}

# marks: long
# first: a dry run changes nothing there and prints what a push would send, and the card; a push says where it is as JSON and never the token
@test "without a token it exits 78, with rows that cannot be published 65" {
  HF_ENDPOINT=http://127.0.0.1:9 HF_TOKEN='' run hub-push data --repo lab/decks
  assert_failure 78
  assert_output "hub-push: HF_TOKEN is not set; make a token with write permission on the Hub's page settings/tokens and export it"
  echo '{"id":"s1"}' > data/test.jsonl
  run hub-push data --repo lab/decks
  assert_failure 65
  assert_output 'hub-push: data/test.jsonl:1: s1: this id came before, in train.jsonl'
}

# marks: long
# first: tests/hub/test_repository.py::test_without_a_network_it_may_be_tried_again
@test "without a network it exits 75, with a wrong name 2" {
  HF_ENDPOINT=http://127.0.0.1:9 run hub-push data --repo lab/decks
  assert_failure 75
  assert_output --regexp '^hub-push: the Hub did not answer: '
  run hub-push data --repo decks
  assert_failure 2
  assert_output "hub-push: --repo 'decks' is not OWNER/NAME (see hub-push --help)"
}
