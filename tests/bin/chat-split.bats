# marks: slow
load ../helper

rows() {
  for n in $(seq "$1" "$2"); do
    echo '{"id":"s'$n'","messages":[{"role":"user","content":"request '$n'"}],"seed":{"theme":"seriph","domain":"d'$((n % 3))'","language":"en"}}'
  done
}

@test "the two files hold every row once, and the report counts them" {
  run --separate-stderr bash -c "$(declare -f rows); rows 1 20 | chat-split --out chat --share 0.2"
  assert_success
  assert_output --partial '"test": {"rows": 4, "clusters": 4, "theme": {"seriph": 4}'
  run bash -c 'cat chat/train.jsonl chat/test.jsonl | grep -o "\"id\":\"s[0-9]*" | sort -u | wc -l'
  assert_output 20
}

# marks: long
# first: tests/corpus/test_split.py::test_rows_that_come_later_move_none
@test "rows that come later move none" {
  rows 1 20 | chat-split --out chat --share 0.2 > /dev/null
  cp chat/split.tsv before.tsv
  rows 1 60 | tac | chat-split --out chat --share 0.2 > /dev/null
  run bash -c 'comm -23 <(sort before.tsv) <(sort chat/split.tsv) | wc -l; grep -c test chat/split.tsv'
  assert_output $'0\n12'
}

# marks: long
# first: the two files hold every row once, and the report counts them
@test "no rows are an error" {
  run chat-split --out chat < /dev/null
  assert_failure 65
  assert_output "chat-split: stdin: no record in it"
}
