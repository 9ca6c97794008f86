# marks: slow
load ../helper

setup() {
  idle_stages
  start_endpoint --model policy
}

teardown() {
  stop_endpoint
  [ -z "${SERVER:-}" ] || kill -INT "$SERVER" 2> /dev/null || true
}

serve() {
  rm -f eval/server.json
  eval-serve --root eval 2> said &
  SERVER=$!
  await [ -s eval/server.json ]
}
request() { verb=$1; shift; eval-request "$verb" --address eval/server.json "$@"; }

@test "run prints the answer on stdout, progress on stderr, and its status says whether all was measured" {
  serve
  run --separate-stderr request run --rollout 3 --base-url "$URL" --bench needle --bench aime25:4 --top-k 20 --limit 2 --run a
  assert_success
  assert_equal "$(jq -r '[.status, .raw_metrics.needle."pass@1".accuracy, .raw_metrics.aime25.delegate.ok] | tostring' <<< "$output")" '["done",0.5,1]'
  assert_equal "$(jq -c .status <<< "$stderr" | uniq | tail -n 1)" '"done"'
  grep -q -- '--samples=4 --temperature=0.7 --top-p=0.95 --max-tokens=32768 --seed=0 --jobs=64 --top-k=20' house/asked
  echo needle > house/broken
  run -1 --separate-stderr request run --rollout 4 --base-url "$URL" --bench needle --bench mbpp
  assert_equal "$(jq -r '[.status, .raw_metrics.needle.delegate.ok, .raw_metrics.mbpp.delegate.ok] | tostring' <<< "$output")" '["partial",0,1]'
  run -1 --separate-stderr request run --rollout 5 --base-url "$URL" --bench needle --hard
  assert_equal "$(jq -r .error <<< "$output" | cut -d' ' -f2-)" "is failed: needle: bench-grade ended with status 1: bench-grade: the grader of needle broke"
}

# marks: long
# first: run prints the answer on stdout, progress on stderr, and its status says whether all was measured
@test "submit, status, wait and cancel" {
  serve
  echo 60 > house/pace
  job=$(request submit --rollout 1 --base-url "$URL" --bench needle | jq -r .job_id)
  run request submit --rollout 1 --base-url "$URL" --bench needle
  assert_output "{\"job_id\": \"$job\", \"status\": \"$(jq -r .status <<< "$output")\", \"created\": false}"
  assert_equal "$(request status | jq -r .job_id) $(request status "$job" | jq -r .rollout_id)" "$job 1"
  request cancel "$job" | grep -q '"status": "cancelled"'
  run -1 --separate-stderr request wait "$job"
  assert_equal "$(jq -r '.raw_metrics.needle.delegate.skipped_cancelled' <<< "$output")" 1
}

# marks: long
# first: tests/evalserver/test_server.py::test_a_server_killed_half_way_finishes_only_what_is_left
@test "a server that restarts is waited for" {
  serve
  echo 1 > house/pace
  request run --rollout 1 --base-url "$URL" --bench needle > answer 2> progress &
  asking=$!
  await [ -s house/asked ]
  kill -KILL "$SERVER"
  sleep 1
  serve
  wait "$asking" # the status is 0
  assert_equal "$(jq -r .status < answer) $(wc -l < house/asked)" "done 3"
}

# marks: long
# first: run prints the answer on stdout, progress on stderr, and its status says whether all was measured
@test "what is asked wrongly, and a server that is not there: one line each" {
  run -2 request run --rollout 1 --bench needle
  assert_output "eval-request: run needs --rollout, --base-url and --bench (see eval-request --help)"
  run -2 request wait
  assert_output "eval-request: wait needs the id of a job; eval-request status shows them (see eval-request --help)"
  run -2 request run --rollout 1 --base-url "$URL" --bench needle:x
  assert_output "eval-request: --bench needle:x: NAME or NAME:SAMPLES (see eval-request --help)"
  run -75 request status --patience 0
  assert_output "eval-request: no answer, and no sign of life for 0 s: No such file or directory: eval/server.json; start one with eval-serve, or name it with --url"
  run -75 eval-request status --url http://127.0.0.1:9 --patience 0
  assert_output --partial "eval-request: no answer, and no sign of life for 0 s: [Errno 111] Connection refused"
  serve
  run -65 request run --rollout 1 --base-url "$URL" --bench nedle
  assert_output --partial "eval-request: no benchmark 'nedle' (did you mean needle?); there are: "
  run -69 request wait 0000000000000000.1
  assert_output "eval-request: there is no such job"
  run -69 request wait "no/../such job?from=1" --patience 0 # one word of a path, whatever is in it
  assert_output "eval-request: there is no such job"
  DECKSMITH_EVAL_TOKEN=wrong run -78 request status
  assert_output "eval-request: the token is missing or wrong: Authorization: Bearer TOKEN"
}
