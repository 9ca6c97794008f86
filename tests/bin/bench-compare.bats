# marks: slow
load ../helper

model() { # NAME SHARE-OF-TEN QUESTIONS
  mkdir -p "$1/arithmetic"
  jq -nc --argjson share "$2" --argjson n "${3:-30}" '[range($n)][] | {id: "q\(.)", task: {bench: "arithmetic", fields: {}, expected: "1", revision: "r"}, messages: [],
    gen: {text: "t", model: {name: "m"}, sampling: {}}, grade: {verdict: "x", score: (if . % 10 < $share then 1 else 0 end), answer: "a", detail: {}}}' \
    > "$1/arithmetic/rows.jsonl"
}

@test "a model that lost on a benchmark is said to be worse, with the interval, and it exits 65" {
  model base 8
  model tuned 3
  run --separate-stderr bench-compare tuned base
  assert_failure 65
  assert_line --regexp '^\| arithmetic \| symbolic_correct \| 30 \| 0.300 \| 0.800 \| -0.50 \[-0.*, -0.*\] \\| < 0.001 \| 0.020 \| worse \|$'
  assert_line --regexp '^- arithmetic: tuned is worse than base, by 0.50 \[0\.[0-9]+, 0\.[0-9]+\]$'
  assert_line '**tuned is worse than base on 1 of 1 benchmark: arithmetic**'
  assert_equal "$stderr" 'bench-compare: tuned is worse than base on 1 of 1 benchmark: arithmetic'
}

# marks: long
# first: a model that lost on a benchmark is said to be worse, with the interval, and it exits 65
@test "a model of which a loss beyond the margin is ruled out exits 0, and says what loss" {
  model base 5 400
  model tuned 5 400
  run bench-compare tuned base
  assert_success
  assert_line '- arithmetic: tuned is not separated from base (difference 0.00 [-0.01, 0.01]); a loss of more than 0.011 is ruled out'
  assert_line '**tuned is worse than base on 0 of 1 benchmark**'
}

# marks: long
# first: a model that lost on a benchmark is said to be worse, with the interval, and it exits 65
@test "too few questions to tell exit 69" {
  model base 10 8
  model tuned 10 8
  sed -i '1,3s/"score":1/"score":0/' tuned/arithmetic/rows.jsonl
  run --separate-stderr bench-compare tuned base
  assert_failure 69
  assert_line --regexp '^- arithmetic: cannot tell whether tuned lost more than 0.02 against base \(difference -0.38 \[-0\.[0-9]+, 0\.[0-9]+\] on 8 questions\); if it is as seen, no number of questions rules that out$'
  assert_regex "$stderr" '^bench-compare: tuned is worse than base on 0 of 1 benchmark; cannot tell: arithmetic; more questions'
}

# marks: long
# first: a model that lost on a benchmark is said to be worse, with the interval, and it exits 65
@test "--margin is how much may stay open" {
  model base 10 8
  model tuned 10 8
  run bench-compare tuned base
  assert_failure 69
  run bench-compare --margin 0.5 tuned base
  assert_success
  run bench-compare --margin 0 tuned base
  assert_failure 2
}

# marks: long
# first: tests/benchmarks/test_metrics.py::test_what_was_not_asked_alike_or_not_graded_is_not_compared
@test "what was not asked alike is not compared, and exits 65" {
  model base 5
  model tuned 5
  sed -i 's/"messages":\[\]/"messages":[{"role":"user","content":"x"}]/' tuned/arithmetic/rows.jsonl
  run bench-compare tuned base
  assert_failure 65
  assert_line --partial '- arithmetic: not compared; the two were not asked or graded alike (prompts: '
  assert_line '**tuned is worse than base on 0 of 0 benchmarks; not compared: arithmetic**'
}

# marks: long
# first: a model that lost on a benchmark is said to be worse, with the interval, and it exits 65
@test "a folder without benchmarks exits 69 with the command that makes them" {
  model tuned 3
  run bench-compare tuned nothing
  assert_failure 69
  assert_output 'bench-compare: nothing has no graded benchmark; `make bench MODEL=nothing` makes them'
}

# marks: long
# first: a model that lost on a benchmark is said to be worse, with the interval, and it exits 65
@test "a group that cannot tell names its own margins, since it takes no others" {
  model tuned/guard 10 8
  model base/guard 10 8
  run --separate-stderr bench-compare --group guard tuned base
  assert_failure 69
  assert_regex "$stderr" 'more questions \(LIMIT=\) or wider margins in assets/groups/guard.toml can tell$'
}

log() { # FILE RIGHT-OF-TEN MODEL
  { jq -nc --arg model "$3" '{spec: {completion_fns: [$model], eval_name: "mini.dev.v0", base_eval: "mini", run_config: {}}}, {final_report: {}}'
    jq -nc --argjson share "$2" 'range(300) | {sample_id: "mini.\(.)", type: "match", data: {correct: (. % 10 < $share), expected: "\(.)"}}'; } > "$1"
}

# marks: long
# first: tests/benchmarks/test_harnesses.py::test_each_form_is_known_by_its_content_and_gives_its_questions_scores_and_groups
@test "two logs of another tool are compared as they are, with a comment for a pull request" {
  log a.jsonl 3 tuned
  log b.jsonl 8 base
  run --separate-stderr bench-compare --comment a.jsonl b.jsonl
  assert_failure 65
  assert_line --index 0 '### tuned is worse than base on 1 of 1 benchmark: mini'
  assert_line --regexp '^\| mini \| accuracy \| 300 \| 0.300 \| 0.800 \| -0.50 .* \| worse \|$'
  assert_line '    bench-compare --comment a.jsonl b.jsonl'
  assert_regex "$stderr" 'b.jsonl: 300 rows of mini by base \(OpenAI evals, accuracy: 0.800\)'
}

# marks: long
# first: tests/benchmarks/test_harnesses.py::test_each_form_is_known_by_its_content_and_gives_its_questions_scores_and_groups
@test "logs of equals exit 0, and a group is none of them" {
  log a.jsonl 3 tuned
  log b.jsonl 3 base
  run --separate-stderr bench-compare a.jsonl b.jsonl
  assert_success
  run bench-compare --group guard --comment a.jsonl b.jsonl
  assert_failure 2
}
