load ../helper

# A root of its own without a toolchain: what is said here is said before anything is set up.
setup() {
  for name in Makefile make bin lib assets data; do ln -s "$ROOT/$name" .; done
}

# Not as a part of the make that runs the tests, which would be said in each line.
make_says() { run env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS make "$@" 2>&1; }

# The sentence, and that make stopped at it with nothing made.
refused() {
  make_says "${@:2}"
  assert_failure 2
  assert_line --index 0 --partial "$1"
  [ "${#lines[@]}" = 2 ] && [[ ${lines[1]} == "make/given.mk:"*": *** Nothing was made.  Stop." ]]
  [ ! -e results ]
}

@test "a name that is not there: the nearest and those there are, before anything is made" {
  refused 'There is no model typo in assets/models.toml, assets/gguf.toml or data/models. Type MODEL=NAME with one of: local smol ' baseline MODEL="smol typo"
  refused 'There is no model gpt5.4 in assets/models.toml, assets/gguf.toml or data/models. Did you mean gpt-5.4? Type ' demo MODEL=gpt5.4
}

# marks: long
# first: a name that is not there: the nearest and those there are, before anything is made
@test "a name of each kind that is not there" {
  refused '. Others: openai/NAME, ollama/llama3.2:3b or an address (docs/models.md)' baseline MODEL=llama3.2:3b
  refused 'There is no protocol ofline in assets/protocols. Did you mean offline? Type PROTOCOL=NAME with one of: edit offline ' report PROTOCOL=ofline
  refused 'There is no condition revize in assets/conditions. Did you mean revise?' conditions CONDITION="plain few-shot+revize"
  refused 'There is no benchmark gsm9k:8 in assets/benchmarks or assets/groups. Did you mean gsm8k?' bench BENCH="arithmetic gsm9k:8"
  refused 'There is no trainer typo. Type TRAINER=NAME with one of: nemo-rl trl' sft TRAINER=typo
  refused 'MODEL= is empty. Type MODEL=NAME with one of: local smol ' baseline MODEL=
}

@test "a variable that nobody reads, in any case, is refused on the command line, and not in the environment" {
  refused 'Nobody reads a variable model. Did you mean MODEL? docs/variables.md lists those there are.' baseline model=smol
  refused 'Nobody reads a variable LIMITS. Did you mean LIMIT?' baseline LIMITS=3
  LIMITS=3 model=smol make_says -n help V=1 YES=1 OPENROUTER_API_KEY=k DECKSMITH_WALLS=plain PIP_FIND_LINKS=x
  assert_success
}

@test "a number that is none and a path that make cannot read are refused wherever they stand" {
  refused 'LIMIT=0 is not a whole number from 1. Type LIMIT=6, or leave it out.' baseline LIMIT=0
  touch 'my prompts.csv'
  refused "PROMPTS=my prompts.csv cannot be read by make: a path may hold no space and none of the shell's signs. Type: ln -s 'my prompts.csv' my-prompts.csv, then PROMPTS=my-prompts.csv." baseline PROMPTS='my prompts.csv'
  LIMIT=x refused 'LIMIT=x is not a whole number from 1. Type LIMIT=6, or leave it out. It stands in your environment or in config.mk.' baseline
}

# marks: long
# first: a number that is none and a path that make cannot read are refused wherever they stand
@test "so are other numbers, signs of the shell and parts that are none, and what is right passes" {
  refused 'LIMIT=-3 is not a whole number from 1.' conditions LIMIT=-3
  refused "CAPSULE=it's.tar cannot be read by make" replay CAPSULE="it's.tar"
  echo 'SHARD = 5/4' > config.mk
  refused 'SHARD=5/4 is not a part such as 2/4. Type SHARD=2/4, or leave it out. It stands in your environment or in config.mk.' shard
  echo 'LIMIT = 3' > config.mk
  make_says help
  assert_success
  assert_output --regexp 'LIMIT +=  ?3'
}

# marks: long
# first: a name that is not there: the nearest and those there are, before anything is made
@test "what was given reaches a make inside make as it is" {
  make_says -n conditions MODEL=smol LIMIT= FLAGS="it's \"quoted\" \$\$x"
  refute_output --partial 'Nothing was made'
}

@test "bytecode is kept, whatever the environment says" {
  PYTHONDONTWRITEBYTECODE=1 make_says --silent --eval 'said: ; env' said
  assert_success
  refute_line --partial PYTHONDONTWRITEBYTECODE
}

# marks: long
# first: a name that is not there: the nearest and those there are, before anything is made
@test "a push without a repository, a curve without a run: what to type" {
  make_says push
  assert_line --index 0 "REPO says where: make push REPO=owner/name"
  make_says curve SFT=results/sft/none
  assert_line --index 0 "There is no training run results/sft/none. Name one, make curve SFT=results/sft/RUN, or train one: make sft"
}

@test "a reader of the help that has seen enough is no error" {
  run bash -c 'set -o pipefail; make 2>&1 | true'
  assert_success
  assert_output ""
  run bash -c "set -o pipefail; $ROOT/.venv/bin/python3 $ROOT/make/run_table.py | true"
  assert_success
  assert_output ""
}

# marks: long
# first: a name that is not there: the nearest and those there are, before anything is made
@test "before a first set-up a key that is not set is said, and nothing is fetched" {
  export OPENROUTER_API_KEY=
  make_says baseline MODEL=gpt-5.4
  assert_failure 2
  assert_line --index 0 'gpt-5.4 needs a key: set OPENROUTER_API_KEY in the environment or in .env: echo '\''OPENROUTER_API_KEY=...'\'' >> .env'
  [ ! -e results ] && [ ! -e .venv ]
  echo 'OPENROUTER_API_KEY=k' > .env
  make_says -s run-check MODEL=gpt-5.4
  assert_success
}

# marks: long
# first: a name that is not there: the nearest and those there are, before anything is made
@test "before a first set-up a .env that cannot be read is said" {
  mkdir .env
  OPENROUTER_API_KEY='' make_says -s run-check MODEL=gpt-5.4
  assert_failure 2
  assert_line --index 0 '.env cannot be read (Is a directory): make it a file of yours: chown, chmod 600'
}

@test "a full disk at set-up is said in the last line before make's, with the place" {
  full='no room is left on the disk: %s; set-up takes 4 GiB. Make room and type the same command again.'
  unshare -rm sh -c "mkdir small && mount -t tmpfs -o size=2m tmpfs small" || skip 'no namespaces'
  run unshare -rm bash -c 'mount -t tmpfs -o size=2m tmpfs small && for name in Makefile make bin lib assets data; do ln -s "$1/$name" small/; done &&
    cp "$1/pyproject.toml" "$1/uv.lock" small/ && cd small && env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS make .venv/.python' bash "$ROOT"
  assert_failure 2
  # shellcheck disable=SC2059
  assert_line --partial "$(printf "$full" "$PWD/small")"
  assert_line --regexp '^make: \*\*\* .*Error 75$'
}

# marks: long
# first: a full disk at set-up is said in the last line before make's, with the place
@test "what set-up says of anything else, and its status, stay as they are" {
  run "$ROOT/make/room" -euo pipefail -c 'echo made; echo "no such host" >&2; exit 7'
  assert_failure 7
  assert_line made
  assert_line 'no such host'
  [ "${#lines[@]}" = 2 ]
  [ "$("$ROOT/make/room" -c 'echo made; echo said >&2' 2> said)" = made ] && [ "$(< said)" = said ]
  run "$ROOT/make/room" -euo pipefail -c 'echo "npm error code ENOSPC" >&2; exit 7'
  assert_failure 75
  assert_line --partial 'no room is left on the disk'
}

@test "a module that a rule runs speaks in the target's name" {
  ln -s "$ROOT/.venv" .
  printf '[m]\nlabel = "M"\ncolor = "#123456"\nbase_url = "http://127.0.0.1:9"\nslug = "m"\nkey_env = "M_KEY"\n' > m.toml
  mkdir -p models results/runs/m/offline && mv m.toml models/
  head -2 data/prompts.jsonl > results/runs/m/offline/prompts.jsonl
  DECKSMITH_GOAL=baseline DECKSMITH_MODELS=$PWD/models M_KEY=k DECKSMITH_ROOT=$PWD run within tools python3 -m decksmith.measure.results.cost_prompt results/runs/m/offline
  assert_failure 78
  assert_line --index 0 --partial 'make baseline: m: 2 replies, '
}
