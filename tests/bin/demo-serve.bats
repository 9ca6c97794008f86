# marks: browser
load ../helper

setup() {
  export PATH=$ROOT/.venv/bin:$PATH
  start_endpoint --reply "$FIXTURES/demo" --pace 0.01
}

teardown() {
  [ -z "${SERVER:-}" ] || kill "$SERVER" 2> /dev/null || true
  stop_endpoint
}

serve() {
  rm -f run/address.json
  demo-serve --base-url "$URL" --model endless --port 0 --run run 2> said 3>&- &
  SERVER=$!
  await [ -s run/address.json ]
  DEMO=$(jq -r .url run/address.json)
}

ask() { curl -s -b jar -c jar "$@"; }
heard() { [ "$(grep -cs '"text":' "run/decks/$id/journal.jsonl")" -ge "$1" ]; }
silent() { [ "$(curl -s "${URL%/v1}/stats" | jq .streams)" = 0 ]; }

@test "what a killed server had heard is there after it starts again, for the same visitor, and ended once" {
  serve
  [ "$(stat -c %a run/address.json)" = 600 ]
  [ "$(ask "$DEMO/asks")" = '[]' ]
  id=$(ask -d '{"prompt":"Tea","models":["endless"]}' "$DEMO/asks" | jq -r .id)
  await heard 3
  kill -9 "$SERVER"
  wait "$SERVER" || true
  heard=$(grep -c '"type":"text"' "run/decks/$id/journal.jsonl")
  printf '{"n":99' >> "run/decks/$id/journal.jsonl"  # it was killed in the middle of a line
  serve
  for _ in 1 2; do
    ask "$DEMO/asks/$id/events" | sed -n 's/^data: \[/[/p' > events
    [ "$(jq '[.[] | select(.type == "text")] | length' events)" = "$heard" ]
    [ "$(jq -c '[.[] | select(.type == "end") | .status]' events)" = '["interrupted"]' ]
  done
  [ "$(curl -s "$DEMO/asks")" = '[]' ]
  await silent
  kill -TERM "$SERVER"
  wait "$SERVER" # the status is 0
  [ ! -e run/address.json ]
}

# marks: long
# first: what a killed server had heard is there after it starts again, for the same visitor, and ended once
@test "a port that is taken is named" {
  run -69 demo-serve --base-url "$URL" --model m --port "$(sed 's/.*:\([0-9]*\).*/\1/' <<< "$URL")" --run run
  assert_output --partial "Address already in use"
  assert_output --partial "; give another with --port"
  [ ! -e run/address.json ]
}

# marks: long
# first: tests/bin/chat-generate.bats::a refused key stops the asking at once and says which variable it came from
@test "a model that nobody knows and a key that is missing are named" {
  run -78 demo-serve --model nobody --run run
  assert_output --partial "demo-serve: no model 'nobody' in "
  run -78 env -u OPENROUTER_API_KEY demo-serve --model gpt-5.4 --port 0 --run run
  assert_output --partial "gpt-5.4 needs a key: set OPENROUTER_API_KEY"
  [ ! -e run/address.json ]
}
