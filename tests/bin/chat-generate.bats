# marks: slow
load ../helper

setup() {
  for i in 1 2 3 4 5 6 7 8 9 10; do
    echo "{\"id\":\"p$i\",\"extra\":$i,\"messages\":[{\"role\":\"user\",\"content\":\"Deck number $i\"}]}"
  done > in.jsonl
}

teardown() { stop_endpoint; }

ask() { chat-generate --base-url "$URL" --slug m "$@"; }
asked() { wc -l < asked.jsonl; }
jq_py() { "$ROOT/.venv/bin/python3" -c 'import jq,sys; [print(x) for x in jq.compile(sys.argv[1]).input_text(sys.stdin.read()).all()]' "$1"; }

@test "every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by" {
  start_endpoint
  ask --jobs 4 < in.jsonl > out.jsonl
  run jq_py '[.id, .extra, .gen.finish_reason, .gen.usage.completion_tokens] | tostring' < out.jsonl
  assert_output "$(for i in 1 2 3 4 5 6 7 8 9 10; do echo "[\"p$i\",$i,\"stop\",100]"; done)"
  run jq_py '.gen.by.response | [.id[:9], .model, .created, .system_fingerprint] | tostring' < out.jsonl
  assert_line --index 9 '["chatcmpl-","m",1700000000,"fp_44709d6fcb"]'
}

@test "passing faults of the endpoint are retried until every row has its reply" {
  start_endpoint --plan 429=0.2,500=0.2,drop=0.2,garbage=0.1,empty=0.1,wrapped=0.1 --log asked.jsonl
  run --separate-stderr ask --jobs 4 < in.jsonl
  assert_success
  [ "$(grep -c '"text":"---' <<< "$output")" = 10 ]
  [ "$(asked)" -gt 12 ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "a row that the endpoint refuses is named and final, the others are done, and nothing is asked again" {
  start_endpoint --plan 400=0.3 --log asked.jsonl
  run --separate-stderr ask --run . < in.jsonl
  assert_success
  refused=$(grep -c '"class":"http-400"' <<< "$output")
  [ "$refused" -ge 1 ] && [ "$refused" -lt 10 ]
  [ "$(asked)" = 10 ]
  run --separate-stderr ask --run . < in.jsonl
  assert_success
  [ "$(asked)" = 10 ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "rows that fail for a passing reason exit 75, and only they are asked again" {
  start_endpoint --plan 500=0.3 --times 1 --log asked.jsonl
  run --separate-stderr ask --run . --retries 0 < in.jsonl
  assert_failure 75
  failed=$(grep -c '"kind":"infra"' <<< "$output")
  [ "$failed" -ge 1 ]
  run --separate-stderr ask --run . --retries 0 < in.jsonl
  assert_success
  [ "$(asked)" = $((10 + failed)) ]
}

# marks: long
# first: passing faults of the endpoint are retried until every row has its reply
@test "a storm of 429 passes without losing a row" {
  start_endpoint --storm 25 --log asked.jsonl
  run --separate-stderr ask --jobs 8 --retries 0 < in.jsonl
  assert_success
  [ "$(grep -c '"text":"---' <<< "$output")" = 10 ]
}

@test "a refused key stops the asking at once and says which variable it came from" {
  start_endpoint --plan 401=1 --times 99 --log asked.jsonl
  KEY=secret-value run --separate-stderr ask --key-env KEY --jobs 1 < in.jsonl
  assert_failure 75
  [ "$(asked)" = 1 ]
  [[ $stderr == *"the key is refused"*"(key from KEY)"* ]]
  [[ $stderr$output != *secret-value* ]]
}

# marks: long
# first: a refused key stops the asking at once and says which variable it came from
@test "a dead endpoint trips the breaker: the remaining rows end at once with its words" {
  run --separate-stderr chat-generate --base-url http://127.0.0.1:9/v1 --slug m --jobs 1 --retries 0 \
    < <(for i in $(seq 30); do echo "{\"id\":\"q$i\",\"messages\":[{\"role\":\"user\",\"content\":\"$i\"}]}"; done)
  assert_failure 75
  [[ $stderr == *"stopped asking http://127.0.0.1:9/v1: 10 requests in a row failed"* ]]
  [ "$(grep -c '"class":"circuit-open"' <<< "$output")" = 20 ]
}

# marks: long
# first: tests/models/test_client.py::test_what_cut_a_reply_off_follows_from_its_counts
@test "a reply in half is a fault, a truncated one is kept and named, with who cut it off" {
  start_endpoint --plan truncated=1 --times 3
  run --separate-stderr ask --max-tokens 101 < <(head -1 in.jsonl)
  assert_success
  [[ $output == *'"finish_reason":"length"'* && $output == *'"cut_by":"server"'* ]]
  [[ $stderr == *'p1: truncated after 100 tokens, by the server before max_tokens'* ]]
}

# marks: long
# first: tests/models/test_client.py::test_thought_and_answer_are_parted
@test "reasoning is kept apart wherever the endpoint puts it" {
  for plan in reasoning think; do
    start_endpoint --plan $plan=1
    run --separate-stderr ask < <(head -1 in.jsonl)
    assert_success
    [[ $output == *'"reasoning":"step by step"'* ]]
    [[ $output == *'"text":"---\ntheme'* ]]
    stop_endpoint
    rm endpoint.url
  done
}

# marks: long
# first: tests/core/test_stream.py::test_killed_at_random_moments_it_finishes_and_repeats_nothing
@test "a torn journal line is cut and only that row is asked again, as is what changed in a reordered input" {
  start_endpoint --log asked.jsonl
  ask --run . < in.jsonl > first.jsonl
  truncate -s -40 journal/gen.jsonl
  ask --run . < in.jsonl > second.jsonl
  [ "$(asked)" = 11 ]
  cmp <(jq_py 'del(..|.by?)' < first.jsonl) <(jq_py 'del(..|.by?)' < second.jsonl)
  ask --run . < <(tac in.jsonl | sed 's/Deck number 3"/Deck number 33"/') > third.jsonl
  [ "$(asked)" = 12 ]
  [ "$(head -1 third.jsonl | jq_py .id)" = p10 ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "samples become rows of their own, each with its seed, and are never mixed up" {
  start_endpoint --log asked.jsonl
  run --separate-stderr ask --samples 3 --seed 7 --run . < <(head -1 in.jsonl)
  assert_success
  [ "$(jq_py '[.id, .gen.sample.k, .gen.sampling.seed] | tostring' <<< "$output")" = '["p1~0",0,7]
["p1~1",1,8]
["p1~2",2,9]' ]
  [ "$(asked)" = 3 ]
}

@test "the budget is a hard stop that loses nothing" {
  export DECKSMITH_ROOT=$PWD
  mkdir -p assets && ln -s "$ROOT/.venv" . && ln -s "$ROOT/lib" .
  start_endpoint --log asked.jsonl
  printf '[m]\nbase_url = "%s"\nslug = "m"\nprice = { prompt = 0, completion = 1000 }\n' "$URL" > assets/models.toml
  run --separate-stderr chat-generate --model m --run . --budget 0.45 --max-tokens 100 --jobs 8 < in.jsonl
  assert_failure 75
  [ "$(grep -c '"cost":0.1' <<< "$output")" = 4 ]
  [ "$(grep -c '"class":"budget"' <<< "$output")" = 6 ]
  run --separate-stderr chat-generate --model m --run . --budget 10 --max-tokens 100 < in.jsonl
  assert_success
  [ "$(asked)" = 10 ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "a dry run prints the exact request, with its picture and its flags and nothing that was not said, and asks nothing" {
  start_endpoint --log asked.jsonl
  picture='[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]'
  run --separate-stderr ask --dry-run --temperature 0.5 --top-k 20 --top-p 0.9 --max-tokens 9 <<< '{"id":"p1","messages":[{"role":"user","content":'"$picture"'}]}'
  assert_success
  [ "$(jq_py '[.url, .body.messages[0].content] | tostring' <<< "$output")" = "[\"$URL/chat/completions\",$picture]" ]
  [ "$(jq_py '.body | del(.messages) | to_entries | sort_by(.key) | map("\(.key)=\(.value)") | join(" ")' <<< "$output")" = "max_tokens=9 model=m temperature=0.5 top_k=20 top_p=0.9" ]
  [ ! -s asked.jsonl ]
}

# marks: long
# first: tests/models/test_client.py::test_patience_ends_a_request_that_is_never_answered_to_the_end
@test "a request that is never answered ends at its deadline" {
  export DECKSMITH_ROOT=$PWD
  mkdir -p assets && ln -s "$ROOT/.venv" . && ln -s "$ROOT/lib" .
  start_endpoint --plan hang=1 --times 9
  printf '[m]\nbase_url = "%s"\nslug = "m"\ntimeout = 0.5\n' "$URL" > assets/models.toml
  run --separate-stderr chat-generate --model m --retries 0 < <(head -1 in.jsonl)
  assert_failure 75
  [[ $output == *'"class":"timeout"'* ]]
}

# marks: long
# first: tests/models/test_client.py::test_a_request_that_does_not_fit_is_the_model_s_fault
@test "a request that does not fit the context is the model's fault and kept" {
  start_endpoint --context 1000 --log asked.jsonl
  run --separate-stderr ask --samples 2 --run . --max-tokens 2000 < <(head -1 in.jsonl)
  assert_success
  [ "$(jq_py '.gen | [.error.kind, .error.class, .sample.k] | tostring' <<< "$output")" = $'["model","context-overflow",0]\n["model","context-overflow",1]' ]
  [[ $stderr == *"p1~0: model fault, context-overflow: the request does not fit the model's context (HTTP 400: "* ]]
  before=$(asked)
  ask --samples 2 --run . --max-tokens 2000 < <(head -1 in.jsonl)
  [ "$(asked)" = "$before" ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "unknown model, missing key, no model: one line each, exit 78" {
  run chat-generate --model nobody < in.jsonl
  assert_failure 78
  assert_output --partial "no model 'nobody' in"
  run env -u OPENROUTER_API_KEY chat-generate --model gpt-5.4 < in.jsonl
  assert_failure 78
  assert_output --partial 'set OPENROUTER_API_KEY in the environment or in .env'
  run chat-generate < in.jsonl
  assert_failure 78
}

@test "a redirect is not followed: prompts go to the host that was named" {
  start_endpoint --plan 307=1 --times 99
  run --separate-stderr ask < <(head -1 in.jsonl)
  [[ $output == *'"class":"http-307"'* ]]
}

# marks: long
# first: tests/core/test_stream.py::test_a_wrong_key_is_named_before_any_work_and_what_is_lacking_or_unknown_passes
@test "a record without messages is named by line and id" {
  URL=http://127.0.0.1:9/v1
  run ask < <(echo '{"id":"x1"}')
  assert_failure 65
  assert_line --partial 'chat-generate: stdin:1: x1: no "messages" in this record'
}

# Several servers: start N endpoints, their addresses in U1, U2, ..; their processes in E1, E2, ..
start_several() {
  local i n=$1
  shift
  for i in $(seq "$n"); do
    rm -f endpoint.url
    start_endpoint --log "asked$i.jsonl" "$@"
    eval "U$i=$URL E$i=$ENDPOINT"
    SEVERAL="${SEVERAL:-} $ENDPOINT"
  done
}
stop_several() { for one in ${SEVERAL:-}; do kill -CONT "$one" 2>/dev/null; kill "$one" 2>/dev/null || true; done; }
teardown() { stop_endpoint; stop_several; }
many() { for i in $(seq "$1"); do echo "{\"id\":\"q$i\",\"messages\":[{\"role\":\"user\",\"content\":\"Talk $i\"}]}"; done; }
has() { [ "$(cat "$2" 2>/dev/null | wc -l)" -ge "$1" ]; } # lines of a file
after() { await has "$@"; }
answered() { grep -c '"text":"---'; }

@test "a server that dies in the middle loses its requests to the others: every record once, none twice" {
  start_several 2 --latency 0.4
  (after 3 asked2.jsonl; kill -KILL "$E2") &
  run --separate-stderr chat-generate --base-url "$U1" --base-url "$U2" --slug m --jobs 4 --retries 0 < <(many 24)
  assert_success
  [ "$(answered <<< "$output")" = 24 ]
  [[ $stderr == *"$U2 is gone "*"; 1 more take its requests"* ]]
  [ "$(cat asked?.jsonl | grep -c '"status": 200')" -le 26 ] # the two in flight at its death may have been counted there
}

# marks: long
# first: a server that dies in the middle loses its requests to the others: every record once, none twice
@test "a server that falls silent is left out, and taken back when it answers" {
  export DECKSMITH_PULSE=0.1
  start_several 2 --latency 0.2
  (after 3 asked2.jsonl; kill -STOP "$E2"; after 45 asked1.jsonl; kill -CONT "$E2") &
  run --separate-stderr chat-generate --base-url "$U1" --base-url "$U2" --slug m --jobs 2 --retries 0 < <(many 90)
  assert_success
  [ "$(answered <<< "$output")" = 90 ]
  [[ $stderr == *"$U2 is gone (silent "*"$U2 answers again"* ]]
}

# marks: long
# first: a server that dies in the middle loses its requests to the others: every record once, none twice
@test "with no server left the rest are named, exit 75, and a rerun asks only them" {
  start_several 2 --latency 0.3
  (after 1 asked2.jsonl; kill -KILL "$E1" "$E2") &
  run --separate-stderr chat-generate --base-url "$U1" --base-url "$U2" --slug m --jobs 2 --retries 1 --run . < <(many 8)
  assert_failure 75
  [[ $output == *'no server answers: http'*'; http'* ]]
  start_endpoint --log asked3.jsonl
  run --separate-stderr chat-generate --base-url "$URL" --slug m --run . < <(many 8)
  assert_success
  [ "$(wc -l < asked3.jsonl)" = "$((8 - $(wc -l < asked1.jsonl) - $(wc -l < asked2.jsonl)))" ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "several addresses of which none answers: exit 69 with what is wrong with each" {
  run --separate-stderr chat-generate --base-url http://127.0.0.1:9/v1 --base-url http://127.0.0.1:10/v1 --slug m < in.jsonl
  assert_failure 69
  [[ $stderr == *"no server answers: http://127.0.0.1:9/v1: "*"; http://127.0.0.1:10/v1: "* ]]
}

served() { echo "{\"url\":\"$2\",\"models\":[\"base\",\"tuned\"],\"engine\":\"vllm 1\",\"base\":\"b\",\"adapters\":{\"tuned\":{\"sha256\":\"$3\"}}}" > "serve/$1.json"; }

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "serve: is whatever server announces itself; its adapter is recorded, and another adapter is another model" {
  export DECKSMITH_SERVE=$PWD/serve http_proxy=http://127.0.0.1:9
  mkdir serve
  run --separate-stderr chat-generate --model tuned < in.jsonl
  assert_failure 69
  [ "$stderr" = "chat-generate: no server runs; start one: make serve" ]
  start_endpoint --log asked.jsonl
  served dead http://127.0.0.1:9/v1 aaa
  served live "$URL" aaa
  run --separate-stderr chat-generate --model tuned --run . < in.jsonl
  assert_success
  [ "$(jq_py .gen.model <<< "$output" | sort -u)" = "{'name': 'tuned', 'slug': 'tuned', 'params': {}, 'served': {'engine': 'vllm 1', 'base': 'b', 'adapter': 'aaa'}}" ]
  rm serve/*
  served live "$URL" bbb
  run --separate-stderr chat-generate --model tuned --run . < in.jsonl
  assert_success
  [ "$(asked)" = 20 ]
}

# marks: long
# first: every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by
@test "serve: what is finished needs no server, the base does not depend on the adapter, and two adapters of one name are refused" {
  export DECKSMITH_SERVE=$PWD/serve http_proxy=http://127.0.0.1:9
  mkdir serve
  start_endpoint --log asked.jsonl
  served live "$URL" bbb
  chat-generate --model tuned --run . < in.jsonl > first.jsonl
  rm serve/*
  run --separate-stderr chat-generate --model tuned --run . < in.jsonl
  assert_success
  [ "$(asked)" = 10 ]
  served live "$URL" bbb
  run --separate-stderr chat-generate --model base --run base < in.jsonl
  served live "$URL" ccc
  run --separate-stderr chat-generate --model base --run base < in.jsonl
  [ "$(asked)" = 20 ]
  served dead http://127.0.0.1:9/v1 aaa
  run --separate-stderr chat-generate --model tuned < in.jsonl
  assert_failure 65
  [[ $stderr == *"serve/dead.json and $PWD/serve/live.json serve different models (another adapter)"* ]]
}

# marks: long
# first: tests/models/test_client.py::test_a_request_takes_parameters_in_order_of_strength_and_speaks_the_endpoint_s_names
@test "a thinking budget goes from entry or protocol into the request" {
  export DECKSMITH_ROOT=$PWD
  mkdir -p assets/protocols && ln -s "$ROOT/.venv" . && ln -s "$ROOT/lib" . && ln -s "$ROOT/assets/schemas" assets
  start_endpoint
  printf '[a]\nbase_url = "%s"\nslug = "m"\nparams = { thinking_token_budget = 512 }\n[b]\nbase_url = "%s"\nslug = "m"\n' "$URL" "$URL" > assets/models.toml
  sed 's/^seed = 1/thinking_token_budget = 2048/' "$ROOT/assets/protocols/offline.toml" > assets/protocols/offline.toml
  for model in a b; do chat-generate --model $model --protocol offline < <(head -1 in.jsonl); done > out.jsonl
  [ "$(jq_py .gen.sampling.thinking_token_budget < out.jsonl)" = $'512\n2048' ]
  [ "$(jq_py .gen.model.params.thinking_token_budget < out.jsonl | head -1)" = 512 ] # what the entry set is the model's own
  [ "$(jq_py .gen.request < out.jsonl | sort -u | grep -cE '^[0-9a-f]{64}$')" = 2 ]
  printf '[a]\nbase_url = "%s"\nslug = "m"\nextra_body = { messages = [] }\n' "$URL" > assets/models.toml
  run chat-generate --model a < in.jsonl
  assert_failure 78
  assert_output --partial "[a] extra_body.messages: not a model's to set"
}
