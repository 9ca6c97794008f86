# shellcheck disable=SC2034  # what the tests read is set here
# Loaded by every .bats file: the scripts on the path, jq and curl as far as tests use them, the assertions, a folder of the test's own.
bats_require_minimum_version 1.5.0
ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd -P)
BIN=$ROOT/bin
FIXTURES=$ROOT/tests/fixtures
for file in "$ROOT"/tests/node_modules/bats-{support,assert}/src/*.bash; do
  # shellcheck source=/dev/null
  source "$file" # as their load.bash, which starts two processes for each
done
export PATH=$BIN:$ROOT/tests/tools:$PATH IMAGES=off
cd "$BATS_TEST_TMPDIR" || exit 1

# Run a command until it succeeds. After five minutes it hangs: no test knows a shorter clock.
await() {
  for _ in $(seq 3000); do "$@" && return; sleep 0.1; done
  return 1
}

# Start the misbehaving endpoint with the given options; sets $URL, stops with the test.
start_endpoint() {
  "$ROOT/.venv/bin/python3" "$ROOT/tests/endpoint.py" "$@" > endpoint.url &
  ENDPOINT=$!
  await [ -s endpoint.url ]
  URL=$(cat endpoint.url)
}

stop_endpoint() { [ -z "${ENDPOINT:-}" ] || kill "$ENDPOINT" 2>/dev/null || true; }

# The runs smol and smol-sft of so many prompts, without pictures of their slides.
synthetic_runs() { # [FOLDER PROMPTS]..
  PYTHONPATH=$ROOT/tests/web "$ROOT/.venv/bin/python3" -c 'import sys, synthetic; from pathlib import Path
for folder, prompts in zip(sys.argv[1::2], sys.argv[2::2]):
    for name, ability in (("smol", 0.45), ("smol-sft", 0.8)): synthetic.run(Path(folder, name), name, ability, int(prompts), slides_too=False)' "$@"
}

# A house whose benchmark stages do nothing, in no time (tests/fixtures/eval/stage); tests/evalserver/test_server.py runs the real ones.
idle_stages() {
  export DECKSMITH_ROOT=$PWD/house PATH=$ROOT/.venv/bin:$PATH
  mkdir -p house/bin
  for name in lib assets data .venv; do ln -s "$ROOT/$name" house; done
  for name in bench-prepare record-sample bench-prompt chat-generate bench-grade bench-summarize; do
    ln -s "$ROOT/tests/fixtures/eval/stage" "house/bin/$name"
  done
  echo 0 > house/pace
}
