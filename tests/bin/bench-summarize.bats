# marks: slow
load ../helper

rows() { # sample k of each question is right when its number is below the question's
  jq -nc '[range(3)] | .[] as $q | [range(2)][] | {id: "q\($q)~\(.)", task: {bench: "arithmetic", fields: {}, expected: "1", subset: null, revision: "r"},
    messages: [], gen: {text: "t", finish_reason: "stop", model: {name: "m"}, sampling: {}, sample: {of: "q\($q)", k: .}},
    grade: {verdict: (if . < $q then "right" else "wrong" end), score: (if . < $q then 1 else 0 end), answer: "\(.)", truncated: false, detail: {}}}'
}

@test "metrics are printed, and written under NeMo-Skills' names as shares" {
  rows | bench-summarize --out . > all.json
  assert_equal "$(jq -c '.modes | map_values(.symbolic_correct)' eval-results/arithmetic/metrics.json)" \
    '{"pass@1[avg-of-2]":0.5,"pass@1":0.5,"pass@2":0.6667,"majority@2":0.5}'
  assert_equal "$(jq -c .arithmetic all.json)" "$(jq -c . eval-results/arithmetic/metrics.json)"
}

# marks: long
# first: metrics are printed, and written under NeMo-Skills' names as shares
@test "the table says how many of the benchmark's rows it is of, by the card of the same revision" {
  rows | sed 's/"revision":"r"/"revision":"seed 1"/' > rows.jsonl
  export DECKSMITH_BENCH=$PWD/bench
  bench-prepare arithmetic > /dev/null
  run bench-summarize --table < rows.jsonl
  assert_success
  assert_output "benchmark   mode              questions  score  std err            95 %  no answer  truncated  coverage  tokens  seconds     cost
arithmetic  pass@1[avg-of-2]   3 of 200  0.500    0.289  [0.000, 1.000]      0.000      0.000     1.000       –        –  unknown
            pass@2                    3  0.667    0.333               –      0.000
            majority@2                3  0.500    0.289               –      0.000"
}

# marks: long
# first: metrics are printed, and written under NeMo-Skills' names as shares
@test "without a card the table says how many it is of, with one the object says both" {
  rows | sed 's/"revision":"r"/"revision":"seed 1"/' > rows.jsonl
  export DECKSMITH_BENCH=$PWD/bench
  run bench-summarize --table < rows.jsonl
  assert_line --index 1 --regexp '^arithmetic  pass@1.avg-of-2. +3  0.500 '
  bench-prepare arithmetic > /dev/null
  assert_equal "$(bench-summarize < rows.jsonl | jq -c '.arithmetic | [.num_questions, .rows]')" '[3,200]'
}

# marks: long
# first: metrics are printed, and written under NeMo-Skills' names as shares
@test "a question that lacks a sample exits 75 and is named, a part twice exits 65" {
  run bench-summarize < <(rows | sed 1d)
  assert_failure 75
  assert_output 'bench-summarize: samples are missing, of 1: q0 (1 of 2); run the same commands again'
  run bench-summarize < <(rows; rows)
  assert_failure 65
  assert_output --partial 'stdin:7: q0~0: this id came before'
}
