load ../helper

setup() {
  cat > rows.jsonl <<'EOF'
{"id":"a","messages":[{"role":"user","content":"A deck for beekeepers on how a swarm finds its new home, nine slides in the seriph theme"},{"role":"assistant","content":"1"}]}
{"id":"b","messages":[{"role":"user","content":"A deck for beekeepers about how a swarm finds its new home, nine slides in seriph theme"},{"role":"assistant","content":"2"}]}
{"id":"c","messages":[{"role":"user","content":"Teach my pupils to read a map of tides before the trip to the mudflats"},{"role":"assistant","content":"3"}]}
EOF
  echo '{"id":"p1","messages":[{"role":"user","content":"teach my pupils to read a map of the tides, before the trip to the mudflats!"}]}' > held.jsonl
}

@test "a row near a held-out prompt is dropped with the pair shown, near-duplicates share a cluster" {
  run --separate-stderr chat-overlap --lexical --against held.jsonl < rows.jsonl
  assert_success
  assert_equal "$(echo "$output" | wc -l)" 2
  assert_line --index 0 --partial '"overlap":{"cluster":"a","near":[{"ngram":0.7'
  assert_line --index 1 --partial '"overlap":{"cluster":"a","near":[{"ngram":0.7'
  [[ $stderr == *"chat-overlap: c: dropped, it is near the held-out p1 (ngram 0.9"*"'Teach my pupils to read"* ]]
  [[ $stderr == *"3 rows: 2 kept, 1 leak; 2 clusters"* ]]
}

# marks: long
# first: tests/corpus/test_overlap.py::test_the_embedding_sees_a_paraphrase_that_shares_few_letters
@test "embeddings are kept in the journal and say the same again" {
  chat-overlap --against held.jsonl < rows.jsonl > one
  run wc -l < journal/embedding.jsonl
  assert_output 4
  chat-overlap --against held.jsonl < rows.jsonl > two
  run wc -l < journal/embedding.jsonl
  assert_output 4
  run diff one two
  assert_success
}

# marks: long
# first: tests/core/test_scripts.py::test_what_is_no_record_is_refused_by_line
@test "a bad line is named" {
  echo '{"id":' >> rows.jsonl
  run chat-overlap --lexical --against held.jsonl < rows.jsonl
  assert_failure 65
  assert_output --partial "stdin:4:"
}
