load ../helper

setup() {
  for deck in honest/tides hollow/keys_only; do
    "$ROOT/.venv/bin/python3" -c 'import json, sys; print(json.dumps({"id": sys.argv[1].split("/")[1], "gen": {"text": open(f"{sys.argv[2]}/decks/{sys.argv[1]}.md").read()}}))' \
      $deck "$FIXTURES"
  done > gen.jsonl
  echo '{"id":"none","gen":{"text":""}}' >> gen.jsonl
  deck-parse --run r < gen.jsonl > in.jsonl 2> /dev/null
}

scores() { "$ROOT/.venv/bin/python3" -c 'import json, sys
for line in sys.stdin:
    r = json.loads(line)
    print(r["id"], r["features"].get("craft_v5"), r["features"].get("craft"))'; }

@test "help is one sentence and a pipe" {
  run deck-scan --help
  assert_success
  assert_line --index 0 "Count what decks use of Slidev: the published scan (craft_v5) and ours on the real parser (craft)."
  assert_line --index 1 "  deck-judge --run results/runs/smol/offline < renders.jsonl | deck-scan --run results/runs/smol/offline | deck-score"
}

@test "both scans are reported, and only the published one is fooled by a hollow deck" {
  run --separate-stderr bash -c 'set -o pipefail; deck-scan --run r < in.jsonl'
  assert_success
  run scores <<< "$output"
  assert_output "tides 5.0 3.071
keys_only 5.0 1.0
none None None"
}

@test "a deck that failed to render is scanned all the same" {
  sed 's/}$/,"render":{"error":{"kind":"model","class":"yaml","message":"x"}}}/' in.jsonl | deck-scan --run r 2> /dev/null > out
  run scores < out
  assert_line "tides 5.0 3.071"
}

@test "a run folder without the deck is named" {
  run deck-scan --run elsewhere < in.jsonl
  assert_failure 69
  assert_line --partial "deck-scan: tides: elsewhere/tides/deck.md: No such file or directory; is --run the folder that deck-parse wrote to?"
}

@test "a broken line is a bad record, an unknown option a usage error" {
  run deck-scan --run r < <(echo '{"id":')
  assert_failure 65
  run deck-scan --frobnicate < /dev/null
  assert_failure 2
}
