# marks: slow
load ../helper

setup() {
  export DECKSMITH_SANDBOX_TOKEN=secret-of-this-test PATH=$ROOT/.venv/bin:$PATH
  sandbox-serve --address address.json --jobs 1 2> said &
  SERVER=$!
  await [ -s address.json ]
  URL=$(jq -r .url address.json)
}

teardown() { kill "$SERVER" 2> /dev/null || true; }
ask() { curl -s -w '\n %{http_code}\n' -H "Authorization: Bearer $DECKSMITH_SANDBOX_TOKEN" "$@"; }

@test "code is run for whoever has the token, and the address file is for its owner alone" {
  run ask -d '{"code": "print(6 * 7)"}' "$URL/run"
  assert_output --regexp '^\{"status": "ok", "stdout": "42\\n", "stderr": "", .*"finished": true.*$'
  assert_line --partial ' 200'
  run curl -s -d '{"code": "print(6 * 7)"}' "$URL/run"
  assert_output '{"error": "the token is missing or wrong: Authorization: Bearer TOKEN"}'
  run stat -c %a address.json
  assert_output 600
  run jq -r .token address.json
  assert_output secret-of-this-test
  run cat said
  assert_output "sandbox-serve: $URL runs code in $(jq -r .walls address.json); the token is in address.json"
}

@test "health needs no token" {
  run curl -s "$URL/health"
  assert_output "{\"status\": \"ok\", \"walls\": $(jq .walls address.json), \"jobs\": 1}"
}

@test "what is asked wrongly is named" {
  run ask -d '{"code": "", "limit": {}}' "$URL/run"
  assert_line --index 0 "{\"error\": \"unknown key 'limit'; there are: limits, code, stdin, files, take\"}"
  assert_line --index 1 ' 400'
  run ask -d '{"code": "", "limits": {"memory": 1e12}}' "$URL/run"
  assert_line --index 0 '{"error": "limits: memory may be at most 5.36871e+08 here"}'
  run ask "$URL/nothing"
  assert_line --index 1 ' 404'
}

runs() { grep -qs 'sleep.9.87654321' /proc/[0-9]*/cmdline; }
ended() { ! runs; }

@test "a signal ends it and what it runs, with status 0, and takes the address file away" {
  ask -d '{"code": "import os; os.execv(\"/bin/sleep\", [\"sleep\", \"9.87654321\"])"}' "$URL/run" &
  await runs
  kill -TERM "$SERVER"
  wait "$SERVER" # the status is 0
  [ ! -e address.json ]
  await ended
}

@test "a port that is taken is named, and the server that has it stays" {
  run -69 sandbox-serve --address other.json --port "${URL##*:}"
  assert_output "sandbox-serve: 127.0.0.1 port ${URL##*:}: Address already in use; give another with --port"
  [ ! -e other.json ]
  curl -s "$URL/health" | grep '"status": "ok"'
}
