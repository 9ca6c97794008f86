# marks: slow
load ../helper

@test "a template is learnt of a file, reads back, and says where each colour is from" {
  PYTHONPATH=$ROOT/tests/render "$ROOT/.venv/bin/python3" -c 'import company_files, pathlib; company_files.plain(pathlib.Path("."))'
  template-learn plain.pptx > learnt.md
  run grep -c '#.* theme accent' learnt.md
  assert_output 6
  printf -- '---\ntitle: Tides\n---\n\n# Tides\n' > deck.md
  run --separate-stderr deck-parse deck.md --template learnt.md
  assert_success
}

# marks: long
# first: a template is learnt of a file, reads back, and says where each colour is from
@test "what is no such file is refused in one sentence, and nothing is printed" {
  echo nothing > x.pptx
  run --separate-stderr template-learn x.pptx
  assert_failure 65
  assert_output ""
  [[ $stderr == "template-learn: x.pptx: is no PowerPoint file, or damaged"* ]]
  run --separate-stderr template-learn https://example.org/
  assert_failure 65
  [[ $stderr == *"nothing is fetched; save the page whole in a browser, and give its .html"* ]]
}
