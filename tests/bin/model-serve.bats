# marks: slow
load ../helper
bats_require_minimum_version 1.5.0

setup() {
  export DECKSMITH_SERVE=$PWD/serve DECKSMITH_IMAGE=serve  # as if in the image: the stub stands where vllm does
  export PATH=$FIXTURES/serve:$BIN:$ROOT/.venv/bin:$PATH
  mkdir adapter
  printf '{"r":12,"base_model_name_or_path":"maker/base","rank_pattern":{"x":40}}' > adapter/adapter_config.json
  local header='{"m.q_proj.lora_A.weight":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}'
  printf "\\x$(printf %x "${#header}")\\0\\0\\0\\0\\0\\0\\0%s1234" "$header" > adapter/adapter_model.safetensors
}

teardown() {
  [ -z "${SERVER:-}" ] || kill "$SERVER" 2> /dev/null || true
  [ ! -s serve/x.log ] || kill "$(said_in_log worker)" 2> /dev/null || true
}

start() {
  model-serve --adapter adapter --name x "$@" 2> said &
  SERVER=$!
  await [ -s serve/x.json ] || { cat said serve/x.log; return 1; }
}
field() { python3 -c 'import json,sys; v=json.load(open(sys.argv[1])); [v := v[k] for k in sys.argv[2:]]; print(v)' "$@"; }
said_in_log() { head -1 serve/x.log | python3 -c 'import json,sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
dead() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; }
ended() { await dead "$1"; }

@test "a server that is healthy, lists both names and answers differently under each is published, with what it serves" {
  start -- --tensor-parallel-size 2
  [ "$(field serve/x.json models)" = "['base', 'tuned']" ]
  [ "$(field serve/x.json engine)" = "vllm 0.33.0" ]
  [ "$(field serve/x.json base)" = maker/base ]
  [ "$(field serve/x.json probe differ)" = True ]
  [ "$(field serve/x.json pid)" = "$SERVER" ]
  run cat said
  assert_line --partial "$(field serve/x.json url) serves base and tuned"
  assert_output --regexp 'ssh -L ([0-9]+):127\.0\.0\.1:[0-9]+ [^ ]+$'
  # What comes back from six questions; empty answers are said here, not after a run.
  assert_output --regexp 'six questions: .*plain +stop +[0-9]+ +0 +0  EMPTY: the whole reply is in the thought'
  for question in system thinking "no thought" tool long; do assert_output --partial "  $question"; done
  assert_output --partial "came back empty: the reasoning parser took it for a thought"
  # The command line is that of the facts, the rank the smallest that vLLM takes, and more arguments come last.
  run python3 -c 'import json,sys; print(" ".join(json.loads(sys.stdin.readline())["argv"]))' < serve/x.log
  assert_output --regexp "^serve maker/base --host 127.0.0.1 --port [0-9]+ --served-model-name base --max-num-seqs 64 --no-enable-prefix-caching --enable-auto-tool-choice --tool-call-parser hermes --enable-lora --max-loras 1 --lora-target-modules q_proj --lora-modules tuned=$PWD/adapter --max-lora-rank 64 --tensor-parallel-size 2\$"
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "several adapters answer by their own names beside a base of its own name, and a base needs none" {
  model-serve --adapter long=adapter --adapter short=adapter --called mine --name x 2> said &
  SERVER=$!
  await [ -s serve/x.json ] || { cat said serve/x.log; return 1; }
  [ "$(field serve/x.json models)" = "['mine', 'long', 'short']" ]
  [ "$(field serve/x.json adapters long path)" = "$PWD/adapter" ]
  kill "$SERVER"; wait "$SERVER"
  model-serve --base maker/base --name x 2> said &
  SERVER=$!
  await [ -s serve/x.json ] || { cat said serve/x.log; return 1; }
  [ "$(field serve/x.json models)" = "['base']" ]
  [ "$(field serve/x.json probe)" = None ]
  run model-serve --adapter adapter --adapter adapter
  assert_failure 2
  assert_output --partial "give each a name of its own, NAME=PATH"
  run model-serve
  assert_failure 2
}

stops_at() { # SIGNAL
  start
  kill "-$1" "$SERVER"
  wait "$SERVER" # the status is 0
  [ ! -e serve/x.json ]
  ended "$(said_in_log pid)"
  ended "$(said_in_log worker)"
  grep -q "SIG$1: stopping the server" said
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "a signal takes the file away and ends the server and what it started" {
  stops_at TERM
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "other signals that end a job do so too" {
  stops_at USR1
  stops_at INT
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "signals that come while the questions are asked end it without their answers" {
  STUB=mute model-serve --adapter adapter --name x 2> said &
  SERVER=$!
  await grep -qs mute serve/x.log
  kill -USR1 "$SERVER"
  kill -TERM "$SERVER" || true
  wait "$SERVER" # the status is 0
  ended "$(said_in_log pid)"
  run cat said
  assert_output --regexp 'SIG(USR1|TERM): stopping the server$'
}

@test "killed by -9 it leaves no server and nothing of a server" {
  start
  kill -KILL "$SERVER"
  ended "$(said_in_log worker)"
  ended "$(said_in_log pid)"
}

# marks: long
# first: killed by -9 it leaves no server and nothing of a server
@test "killed by -9 it leaves nothing of a server that starts" {
  STUB=stubborn model-serve --adapter adapter --name x 2> said &
  SERVER=$!
  await [ -s serve/x.log ]
  kill -KILL "$SERVER"
  ended "$(said_in_log worker)"
  ended "$(said_in_log pid)"
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "an adapter that changes nothing is refused and never published" {
  STUB=silent run --separate-stderr model-serve --adapter adapter --name x
  assert_failure 65
  [[ $stderr == *"base and tuned answer alike; the adapter changes nothing"* ]]
  [ ! -e serve/x.json ]
  ended "$(said_in_log worker)"
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "a server that dies is quoted, whether it was ready or not" {
  STUB=early run --separate-stderr model-serve --adapter adapter --name x
  assert_failure 69
  [[ $stderr == *"the server ended with status 1; the end of $PWD/serve/x.log:"*"CUDA error: no kernel image"* ]]
  STUB=dies run --separate-stderr model-serve --adapter adapter --name x
  assert_failure 69
  [[ $stderr == *"serves base and tuned"*"EngineDeadError"* ]]
  [ ! -e serve/x.json ]
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "a server that is not ready in time is given up with what was seen" {
  STUB=deaf run --separate-stderr model-serve --adapter adapter --name x --timeout 1
  assert_failure 75
  [[ $stderr == *"is not ready in time: HTTP Error 503"* || $stderr == *"is not ready in time: Service Unavailable"* ]]
  ended "$(said_in_log worker)"
}

# marks: long
# first: a server that is healthy, lists both names and answers differently under each is published, with what it serves
@test "what is no adapter, and an argument that vLLM does not know, are refused before anything starts" {
  run model-serve --adapter nowhere
  assert_failure 69
  assert_output "model-serve: nowhere is no adapter: adapter_config.json is not there; model-export writes it"
  run model-serve --adapter adapter -- --tensor-paralel-size 2
  assert_failure 65
  assert_output --regexp 'vLLM 0.33.0 would refuse this: unrecognized arguments: --tensor-paralel-size 2$'
  DECKSMITH_IMAGE=tools run model-serve --adapter adapter --engine local
  assert_failure 69
  assert_output --partial 'has no adapter.gguf, which the embedded engine wants; model-export writes it'
}
