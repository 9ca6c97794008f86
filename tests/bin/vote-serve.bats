# marks: slow
load ../helper

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  PATH=$ROOT/.venv/bin:$PATH
  "$ROOT/.venv/bin/python3" -c 'import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import ballots
for name in ("one", "two"): ballots.run(Path(name), prompts=3, slides=1, size=98)' "$ROOT/tests/web"
  pair-build --study study one two 2> /dev/null > /dev/null
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
  PATH=$ROOT/.venv/bin:$PATH
}

teardown() { [ -z "${SERVER:-}" ] || kill "$SERVER" 2> /dev/null || true; }

# Start the server with the given options; sets $SERVER, $URL and $OWNER.
start() {
  rm -f study/server.json
  vote-serve --study study "$@" 2> said &
  SERVER=$!
  await [ -s study/server.json ]
  URL=$(jq -r .url study/server.json) OWNER=$(jq -r .owner study/server.json)
}

@test "somebody votes over HTTP; after kill -9 the server is where it was, has the vote, and takes it no second time; a signal ends it with status 0" {
  start
  run cat said
  assert_line --index 0 "vote-serve: study: 4 pairs; people vote at $URL/"
  assert_line --index 1 "vote-serve: the owner's page, which makes links and closes the study: \`owner\` of study/server.json"
  assert_equal "$(stat -c %a study/server.json study/secret | tr '\n' ' ')" '600 600 '
  link=$URL$(curl -s -d '{"name": "Ada"}' "$URL/join" | jq -r .link)
  pair=$(curl -s "${link}sheet" | jq -r '.pairs[0].id')
  vote="{\"pair\": \"$pair\", \"key\": \"key-0001\", \"ballot\": {\"choice\": \"tie\", \"seconds\": 2, \"seen\": true}}"
  run curl -s -d "$vote" "${link}vote"
  assert_output '{"is": "stored"}'
  kill -9 "$SERVER"
  wait "$SERVER" || true
  before=$URL
  start
  assert_equal "$URL" "$before"
  run curl -s -d "$vote" "${link}vote"
  assert_output '{"is": "same"}'
  run bash -c "curl -s '${OWNER}state' | jq -c '[.votes, .raters[0].name]'"
  assert_output '[1,"Ada"]'
  kill -TERM "$SERVER"
  wait "$SERVER"
  [ ! -e study/server.json ]
}

# marks: long
# first: tests/study/test_vote_app.py::test_the_owner_invites_follows_closes_and_opens_and_only_then_results_are_told
@test "by invitation nobody can choose a name" {
  start --invited
  run curl -s -d '{"name": "Ada"}' "$URL/join"
  assert_output '{"error": "this study is by invitation: its owner gives you a link"}'
  run bash -c "curl -s '$URL/' | grep -c '<form'"
  assert_output 0
}

# marks: long
# first: somebody votes over HTTP; after kill -9 the server is where it was, has the vote, and takes it no second time; a signal ends it with status 0
@test "a folder that is no study is named with the command that makes one" {
  run -69 vote-serve --study nothing
  assert_output 'vote-serve: nothing is no study; `pair-build --study nothing RUN RUN` makes one'
}
