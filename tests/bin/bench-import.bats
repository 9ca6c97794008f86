# marks: slow
load ../helper

@test "a folder of NeMo-Skills becomes graded rows; one without outputs exits 65 and says what is taken" {
  mkdir -p aime25
  echo '{"problem":"1+1?","expected_answer":"2","generation":"\\boxed{2}","predicted_answer":"2","symbolic_correct":true}' > aime25/output.jsonl
  run --separate-stderr bench-import --model theirs aime25
  assert_success
  assert_equal "$(jq -c '[.id, .task.bench, .gen.model.name, .grade.verdict]' <<< "$output")" '["aime25-00001","aime25","theirs","right"]'
  assert_equal "$stderr" 'bench-import: aime25/output.jsonl: 1 rows of aime25 by theirs (NeMo-Skills, symbolic_correct: 1.000)'
  mkdir gsm8k
  run bench-import gsm8k
  assert_failure 65
  assert_output --partial 'bench-import: gsm8k: a folder of 0 files, none of these. BigCodeBench: NAME_eval_results.json'
}

# marks: long
# first: tests/benchmarks/test_harnesses.py::test_a_score_that_is_none_is_refused_and_never_made_into_one
@test "another metric and another scale are named; a score off the scale exits 65 with the flag" {
  echo '{"doc_id":0,"doc":{},"target":"a","resps":[],"filtered_resps":["x"],"metrics":["acc","mark"],"acc":true,"mark":7}' > samples_mine.jsonl
  run --separate-stderr bench-import --metric mark --scale 1,10 samples_mine.jsonl
  assert_success
  assert_equal "$(jq -c '[.id, .grade.score * 3]' <<< "$output")" '["mine-00000",2]'
  run bench-import --metric mark samples_mine.jsonl
  assert_failure 65
  assert_output 'bench-import: samples_mine.jsonl: record 1: mark is 7, where a score is from 0 to 1; bench-import --scale LO,HI names another scale, --metric another score of acc, mark'
  run bench-import --scale 1 samples_mine.jsonl
  assert_failure 2
}
