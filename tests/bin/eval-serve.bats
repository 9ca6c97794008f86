# marks: slow
load ../helper

setup() {
  idle_stages
}

teardown() { [ -z "${SERVER:-}" ] || kill -INT "$SERVER" 2> /dev/null || true; }

serve() {
  rm -f eval/server.json
  eval-serve --root eval "$@" 2> said &
  SERVER=$!
  await [ -s eval/server.json ]
  URL=$(jq -r .url < eval/server.json)
}
ask() { curl -s -H "Authorization: Bearer $(cat eval/token)" "$@"; }

@test "the address file is for its owner, holds while the server lives, and a restart keeps port and token" {
  serve
  assert_equal "$(cat said)" "eval-serve: $URL evaluates; address and token are in eval/server.json"
  assert_equal "$(stat -c %a eval/server.json eval/token)" "600
600"
  assert_equal "$(jq -r '[.pid, .job] | tostring' < eval/server.json)" "[$SERVER,null]"
  assert_equal "$(jq -r .token < eval/server.json)" "$(cat eval/token)"
  first=$URL token=$(cat eval/token)
  kill -TERM "$SERVER"
  wait "$SERVER" # the status is 0
  [ ! -e eval/server.json ]
  serve
  assert_equal "$URL $(cat eval/token)" "$first $token"
  kill -KILL "$SERVER"
  serve
  assert_equal "$URL $(cat eval/token)" "$first $token"
}

@test "it listens on loopback alone, and a token of the environment is in no process that it starts" {
  export DECKSMITH_EVAL_TOKEN=secret-of-this-test
  serve --model m
  [ "${URL%:*}" = http://127.0.0.1 ] && [ ! -e eval/token ]
  echo 5 > house/pace
  run curl -s -H "Authorization: Bearer secret-of-this-test" "$URL/jobs" \
    -d '{"rollout_id": 0, "router_url": "http://127.0.0.1:9", "benchmarks": [{"name": "needle"}], "model": "m"}'
  assert_output --regexp '^\{"job_id": "[0-9a-f]{16}\.1", "status": "queued", "created": true\}$'
  worker=eval/jobs/$(jq -r .job_id <<< "$output")/needle/process.json
  ip=$(hostname -I | cut -d' ' -f1)
  [ -z "$ip" ] || run -7 curl -s --noproxy '*' "http://$ip:${URL##*:}/health"
  await [ -s "$worker" ]
  pid=$(jq -r .pid < "$worker")
  grep -zq DECKSMITH_ROOT= "/proc/$pid/environ" && ! grep -zq secret-of-this-test "/proc/$pid/environ"
}

# marks: long
# first: the address file is for its owner, holds while the server lives, and a restart keeps port and token
@test "a port that is taken, a protocol that is not there, a folder that another server has: one line each" {
  serve
  run -69 eval-serve --root other --port "${URL##*:}"
  assert_output "eval-serve: 127.0.0.1 port ${URL##*:}: Address already in use; give another with --port"
  run -75 eval-serve --root eval
  assert_output "eval-serve: $PWD/eval: another eval-serve has this folder; give another with --root"
  run -78 eval-serve --root other --protocol nope
  assert_output --partial "nope"
  curl -s "$URL/health" | grep '"status": "ok"'
}

# marks: long
# first: tests/evalserver/test_server.py::test_a_router_is_this_machine_or_one_that_was_allowed_and_nothing_else_of_its_url_counts
@test "only hosts that are allowed are asked" {
  serve --allow 10.9.0.0/16 --allow 'gpu-*' --model m
  body() { echo "{\"rollout_id\": 0, \"router_url\": \"http://$1:80\", \"benchmarks\": [{\"name\": \"needle\"}]}"; }
  run ask "$URL/jobs" -d "$(body 10.8.0.1)"
  assert_output '{"error": "router_url: 10.8.0.1 is not this machine; eval-serve --allow 10.8.0.1 lets it be asked"}'
  for host in 10.9.0.1 gpu-3; do
    run ask "$URL/jobs" -d "$(body $host)"
    assert_output --partial '"created": true'
  done
}
