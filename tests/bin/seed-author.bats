# marks: slow
load ../helper

setup() {
  PYTHON=$(readlink -f "$ROOT/.venv/bin/python3")
  AUTHOR="$PYTHON $FIXTURES/authors/author.py {dir} $ROOT/data/gold"
  seed='{"theme":"seriph","vibe":"bookish","fit":"natural history talk","tone":"warm","domain":"biology","topic":"Bees","audience":"beekeepers","style":"a story","language":"en","slides":9,"features":["image","mermaid","notes"],"gold":"g001-swarm-democracy"}'
}

record() { echo "{\"id\":\"$1\",\"seed\":$seed,\"extra\":1}"; }
py() { "$ROOT/.venv/bin/python3" -c "$@"; }

@test "each seed gets a draft, in order, with all its keys kept, and the folder holds what the author saw and wrote" {
  { record good; record nothing; record other; } | seed-author --author "$AUTHOR" --show "$ROOT/data/gold" --run run --retries 0 > out.jsonl 2> err
  run py 'import json,sys
for line in open("out.jsonl"):
    r = json.loads(line); d = r["draft"]
    print(r["id"], r["extra"], d["path"], d["attempts"], sorted(d.get("sha256", {})), d.get("error", {}).get("class"), d["by"]["tool"])'
  assert_output "good 1 work/good 1 ['PROMPT.md', 'deck.md', 'think.md'] None seed-author
nothing 1 work/nothing 1 [] empty seed-author
other 1 work/other 1 ['PROMPT.md', 'deck.md', 'think.md'] None seed-author"
  run ls -A run/work/good
  assert_output ".lock
EXAMPLE.md
INSTRUCTIONS.md
PROMPT.md
deck.md
run.log
seed.json
status.json
think.md"
  cmp run/work/good/deck.md "$ROOT/data/gold/g001-swarm-democracy/deck.md"
  run cat err
  assert_output --partial "no network"
  assert_output --partial "seed-author: nothing: attempt 1 of 1: empty: the author wrote nothing (exit status 0, it said: nothing)"
}

@test "what cannot be used is said in one line, before anything is written" {
  run seed-author --author no-such-program --run run < /dev/null
  assert_failure 69
  assert_output "seed-author: the author's command no-such-program is not there; install it or give its path"
  [ ! -e run ]
}

# marks: long
# first: what cannot be used is said in one line, before anything is written
@test "an author that cannot be asked is said before anything is written" {
  run seed-author --run run < /dev/null
  assert_failure 2
  assert_output --partial "Missing option '--author'"
  run seed-author --author llm:no-such-model --run run < /dev/null
  assert_failure 78
  assert_output --partial "no model 'no-such-model'"
  run seed-author --author "$AUTHOR" --pass-env NOT_SET_AT_ALL --run run < /dev/null
  assert_failure 78
  assert_output --partial "NOT_SET_AT_ALL"
  run seed-author --author "'open quote" --run run < /dev/null
  assert_failure 78
  [ ! -e run ]
}

# marks: long
# first: each seed gets a draft, in order, with all its keys kept, and the folder holds what the author saw and wrote
@test "a seed that no draft can fulfil costs no attempt, and a line without a seed is named" {
  run --separate-stderr seed-author --author "$AUTHOR" --run run <<< '{"id":"a","seed":{"theme":"nowhere","slides":9,"language":"en"}}'
  assert_success
  assert_output --partial '"kind":"model","class":"seed"'
  [ ! -e run/work/a/run.log ]
  run --separate-stderr seed-author --author "$AUTHOR" --run run <<< '{"id":"b"}'
  assert_failure 65
  assert_equal "${stderr_lines[0]}" 'seed-author: stdin:1: b: no "seed" in this record; an earlier stage writes it (docs/records.md)'
}

@test "words of the template are never read by a shell, and folder, id and task are put into them" {
  cat > show.sh <<< '#!/bin/sh
printf "<%s>\n" "$@"; pwd; ls -A'
  chmod +x show.sh
  seed-author --author './show.sh {id}{id} "a b" $HOME;x "{dir}" {prompt}' --run run --retries 0 < <(record one) > /dev/null 2>&1
  run sed -n '2,100p' run/work/one/run.log
  assert_line --index 0 "<oneone>"
  assert_line --index 1 "<a b>"
  assert_line --index 2 '<$HOME;x>'
  assert_line --index 3 "<$PWD/run/work/one>"
  assert_line --index 4 --partial "<Read INSTRUCTIONS.md in this folder"
  assert_line --index 5 "$PWD/run/work/one"
  assert_equal "${lines[*]:6:4}" ".tmp EXAMPLE.md INSTRUCTIONS.md seed.json"
}
