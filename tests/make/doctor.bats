# marks: engine slow
load ../helper

doctor() { python3 "$ROOT/make/doctor.py" "$@"; }

@test "says ready, one line per requirement, when the embedded model can answer" {
  run doctor --protocol offline smol
  assert_success
  assert_line --regexp '^ok   python +3\.'
  assert_line --regexp '^ok   renderer +3 of 3 slides rendered, walls: [a-z-]+$'
  assert_line --regexp '^ok   smol +answers$'
  assert_line ready
}

# marks: long
# first: tests/bin/chat-generate.bats::a refused key stops the asking at once and says which variable it came from
@test "names what is lacking with the command that mends it, and never prints a key" {
  OPENROUTER_API_KEY='' run doctor --protocol published gpt-5.4
  assert_failure 69
  assert_line "LACK gpt-5.4        OPENROUTER_API_KEY is not set   mend: echo 'OPENROUTER_API_KEY=...' >> .env"
  assert_line '2 lacking'
  export HTTPS_PROXY=http://127.0.0.1:9 OPENROUTER_API_KEY=sk-secret
  run doctor --protocol published gpt-5.4
  assert_failure 69
  assert_line --partial 'OPENROUTER_API_KEY is set'
  refute_output --partial sk-secret
}

@test "on a fresh clone it runs without any set-up and says what to do" {
  mkdir -p lib assets make && cp -r "$ROOT/lib/decksmith" lib/ && cp "$ROOT"/make/{doctor,local_servers}.py make/ && cp "$ROOT/assets/models.toml" assets/
  run python3 make/doctor.py smol
  assert_failure 69
  assert_line 'LACK packages       not set up   mend: make setup'
  ln -s nowhere .env
  run python3 make/doctor.py smol
  assert_line 'LACK .env           cannot be read   mend: make it a file of yours: chown, chmod 600'
  run bash -c 'set -o pipefail; python3 make/doctor.py smol | true'
  assert_success
  assert_output ""
}
