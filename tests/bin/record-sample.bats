# marks: slow
load ../helper

setup() {
  printf '{"id":"a","n":1}\n{"id":"b","n":2}\n{"id":"c","n":3}\n' > in.jsonl
}

@test "keeps the records that the program says true of, in order" {
  run record-sample --where '.n >= 2' < in.jsonl
  assert_success
  assert_output '{"id":"b","n":2}
{"id":"c","n":3}'
}

# marks: long
# first: keeps the records that the program says true of, in order
@test "stops at the limit" {
  run record-sample --limit 2 < in.jsonl
  assert_success
  assert_output '{"id":"a","n":1}
{"id":"b","n":2}'
}

# marks: long
# first: keeps the records that the program says true of, in order
@test "a program that does not compile is a usage error" {
  run record-sample --where '.n >=' < in.jsonl
  assert_failure 2
  assert_output --partial 'record-sample: Invalid value: --where'
}

@test "half of a surrogate pair in one record, or a value that the program fails on, stops no other record" {
  printf '{"id":"a","render":{"xray":[{"text":"\\ud83d"}]}}\n{"id":"b","render":"?"}\n{"id":"c","render":{"xray":[{"text":"whole"}]}}\n' > in.jsonl
  run --separate-stderr record-sample --where '.render.xray[0].text | length > 0' < in.jsonl
  assert_failure 65
  assert_output '{"id":"a","render":{"xray":[{"text":"�"}]}}
{"id":"c","render":{"xray":[{"text":"whole"}]}}'
  [ "$stderr" = 'record-sample: stdin:2: b: --where failed: Cannot index string with string ("xray")' ]
}

# marks: long
# first: tests/core/test_scripts.py::test_what_is_no_record_is_refused_by_line
@test "a broken line is named with its number" {
  run record-sample < <(cat in.jsonl; echo '{"id":')
  assert_failure 65
  assert_line --partial 'record-sample: stdin:4: not JSON'
}

# marks: long
# first: keeps the records that the program says true of, in order
@test "an input without a record is named, be it a file or a pipe" {
  : > empty.jsonl
  run record-sample < empty.jsonl
  assert_failure 65
  assert_output "record-sample: $PWD/empty.jsonl: no record in it"
  run record-sample --limit 2 < <(echo)
  assert_failure 65
  assert_output 'record-sample: stdin: no record in it'
}

# marks: long
# first: keeps the records that the program says true of, in order
@test "a program that is true of no record is told, with the input" {
  run record-sample --where '.n > 7' < in.jsonl
  assert_failure 65
  assert_output "record-sample: $PWD/in.jsonl: --where is true of no record in it: .n > 7"
}

# marks: slow
@test "the shards are parts of what the other flags take, and may be empty" {
  for i in 1 2 3; do record-sample --limit 2 --shard $i/3 < in.jsonl; done | sort > parts
  run cat parts
  assert_output '{"id":"a","n":1}
{"id":"b","n":2}'
}

# marks: long
# first: the shards are parts of what the other flags take, and may be empty
@test "a shard is the same whatever the order of the input, and one that is none is refused" {
  run diff <(record-sample --shard 1/2 < in.jsonl | sort) <(record-sample --shard 1/2 < <(tac in.jsonl) | sort)
  assert_success
  run record-sample --shard 0/3 < in.jsonl
  assert_failure 2
  assert_output --partial "'0/3' is not I/N with I from 1 to N"
}

# marks: long
# first: keeps the records that the program says true of, in order
@test "--shuffle draws by the hashes of the ids, so that a longer draw begins with the shorter one, whatever the order of the input" {
  for n in $(seq 40); do echo "{\"id\":\"p$n\"}"; done > many.jsonl
  record-sample --shuffle --limit 12 < many.jsonl > twelve
  run record-sample --shuffle --limit 30 < <(tac many.jsonl)
  assert_success
  assert_equal "$(head -n 12 <<< "$output")" "$(cat twelve)"
  refute [ "$(cat twelve)" = "$(head -n 12 many.jsonl)" ]
}

# marks: long
# first: the shards are parts of what the other flags take, and may be empty
@test "the turns of a prompt stay together and in order" {
  printf '%s\n' '{"id":"t1","turn":{"of":"t1","n":1}}' '{"id":"a"}' '{"id":"t1.2","turn":{"of":"t1","n":2}}' '{"id":"b"}' '{"id":"t1.3","turn":{"of":"t1","n":3}}' > in.jsonl
  run record-sample --shuffle < in.jsonl
  assert_regex "$(sed 's/.*"id":"\([^"]*\)".*/\1/' <<< "$output" | tr '\n' ' ')" 't1 t1\.2 t1\.3 '
  for part in 1 2 3; do record-sample --shard $part/3 < in.jsonl 2> /dev/null | grep -c '"of":"t1"' || true; done > counts
  assert_equal "$(sort -r counts | head -1)" 3
}

# marks: long
# first: keeps the records that the program says true of, in order
@test "prompts of none that a protocol takes are refused with what helps" {
  echo '{"id":"a","sets":["mine"],"n":1}' > in.jsonl
  run record-sample --protocol offline < in.jsonl
  assert_failure 65
  assert_output --partial 'in.jsonl: no prompt of it is one that offline takes: .sets | index("core"); leave `sets` out of the rows, or PROTOCOL=wide'
}
