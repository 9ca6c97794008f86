setup() { load ../helper; }

@test "plain lines become prompts, and what they ask for is read out of them" {
  printf 'Six slides on tide pools for a school class\n\nAcht Folien über das Wetter in den Bergen, für die Schule und mit dem seriph theme\n' > mine.txt
  run --separate-stderr prompt-check < mine.txt
  assert_success
  said=$stderr
  printf '%s\n' "${lines[@]}" > rows.jsonl
  run jq -c '[.sets, .asks.slides, .asks.theme, (.messages | map(.role)), .checklist]' rows.jsonl
  assert_line --index 0 '[["core"],6,null,["system","user"],[]]'
  assert_line --index 1 '[["core"],8,"seriph",["system","user"],[]]'
  assert_equal "$said" 'prompt-check: 2 prompts; 2 lack a checklist, 1 lack theme (make prompts-check shows what is read)'
}

# marks: long
# first: plain lines become prompts, and what they ask for is read out of them
@test "the rows of data/prompts.jsonl pass unchanged, and only wide ones lack something" {
  run --separate-stderr prompt-check < "$ROOT/data/prompts.jsonl"
  assert_success
  refute_regex "$stderr" 'checklist|references|measured'
  printf '%s\n' "${lines[@]}" | jq -cS . > passed.jsonl
  jq -cS . "$ROOT/data/prompts.jsonl" | diff - passed.jsonl
}

# marks: long
# first: a bad row is named by line and the others go on
@test "an id depends on the request alone" {
  printf 'One deck on rain\nAnother on snow\n' | prompt-check 2> /dev/null | jq -r .id > two
  printf 'Another on snow\n' | prompt-check 2> /dev/null | jq -r .id > one
  assert_equal "$(tail -n 1 two)" "$(cat one)"
}

@test "a bad row is named by line and the others go on" {
  printf '%s\n' '{"request":"A deck","asks":{"slides":"ten"}}' '{"id":"x"}' 'A deck on rain' 'A deck on rain' '{"request": 7' > rows
  run --separate-stderr prompt-check < rows
  assert_failure 65
  assert_equal "${#lines[@]}" 1
  assert_regex "$stderr" "stdin:1: u-[0-9a-f]+: asks.slides: 'ten' is not of type 'integer'"
  assert_regex "$stderr" 'stdin:2: no "request" and no "messages" in this row'
  assert_regex "$stderr" 'stdin:4: u-[0-9a-f]+: stdin:3 has this id already'
  assert_regex "$stderr" 'stdin:5: '
}

# marks: long
# first: a bad row is named by line and the others go on
@test "nothing on stdin is said" {
  run prompt-check < /dev/null
  assert_failure 65
  assert_output --partial 'prompt-check: stdin: no request in it; usage: printf '
}

# marks: long
# first: tests/decks/test_prompts.py::test_every_row_is_of_the_schema_and_its_checklist_finds_its_reference_sentences
@test "a reference sentence that its item does not find is refused" {
  printf '{"request":"A deck on tides","checklist":[{"id":"c1","ask":"A table of tides","match":["@table","tide"]}],"references":["%s"]}\n' \
    'High water twice a day' 'The tide, hour by hour' > rows
  run --separate-stderr prompt-check < rows
  assert_failure 65
  assert_equal "${#lines[@]}" 1
  assert_regex "$stderr" 'stdin:1: u-[0-9a-f]+: references: c1 does not match its own sentence: High water'
}

# marks: long
# first: plain lines become prompts, and what they ask for is read out of them
@test "a file is read by its path, what it holds is said first, and its column can be named" {
  printf 'prompt,text\nSix slides on tide pools,Four slides on rain\n' > mine.csv
  run --separate-stderr prompt-check mine.csv
  assert_failure 65
  assert_equal "$stderr" 'prompt-check: mine.csv: prompt, text may each hold the requests; its columns are prompt, text; name one: REQUEST=COLUMN, or its number'
  run --separate-stderr prompt-check --request text mine.csv
  assert_success
  assert_equal "${stderr_lines[0]}" 'prompt-check: 1 request from mine.csv, column "text"; first: Four slides on rain'
  assert_equal "$(jq -c .source <<< "${lines[0]}")" '{"tags":{"prompt":"Six slides on tide pools"}}'
}
