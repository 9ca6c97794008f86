load ../helper

# The work itself: tests/render/test_agents.py.
@test "it is said how it is to speak" {
  run --separate-stderr deck-serve
  assert_failure 2
  assert_equal "$stderr" "deck-serve: say how it is to speak: --mcp (see deck-serve --help)"
}
