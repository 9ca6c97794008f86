setup() { load ../helper; }

rows() { head -2 "$ROOT/data/prompts.jsonl"; }

@test "of verifiers it is a package with the prompts and the one client file" {
  rows | env-export --kind verifiers --out env 2> said
  assert_equal "$(cat said)" "env-export: 2 of the prompts are in data/prompts.jsonl, which evaluates: whoever trains on them measures nothing by it
env-export: 2 prompts; next: env/README.md"
  assert_equal "$(cd env && find . -type f | sort | tr '\n' ' ')" \
    "./README.md ./decksmith_decks/__init__.py ./decksmith_decks/decksmith_reward.py ./decksmith_decks/prompts.jsonl ./decksmith_decks/taskset.py ./pyproject.toml "
  cmp env/decksmith_decks/decksmith_reward.py "$ROOT/lib/decksmith/train/rewards/reward_client.py"
  assert_equal "$(jq -c '[.id, keys]' env/decksmith_decks/prompts.jsonl | head -1)" \
    '["p001",["asks","checklist","id","messages"]]'
}

# marks: long
# first: of verifiers it is a package with the prompts and the one client file
@test "of nemo-gym its rows name the agent, what the model is asked, and the prompt as the server wants it" {
  rows | jq -c '.messages[-1].content += " Say it in rhyme."' | env-export --kind nemo-gym --out gym 2> said
  assert_equal "$(cat said)" "env-export: 2 prompts; next: gym/README.md"
  cd gym/resources_servers/decksmith
  assert_equal "$(jq -c '[.agent_ref.name, .label.id, .responses_create_params.input[1].role]' data/train.jsonl)" \
    '["decksmith_agent","p001","user"]
["decksmith_agent","p002","user"]'
  assert_equal "$(grep -c decksmith_agent configs/decksmith.yaml)" "1"
}

# marks: long
# first: of verifiers it is a package with the prompts and the one client file
@test "a folder that is there stays as it is" {
  mkdir env
  rows > two
  run env-export --kind verifiers --out env < two
  assert_failure 69
  assert_output "env-export: env is there already; remove it, or give another --out"
}

# marks: long
# first: of verifiers it is a package with the prompts and the one client file
@test "what is no prompt is said by its line, and nothing is written" {
  printf '{"id": "a", "request": "x", "asks": {"slides": "six"}}\n' > bad
  run env-export --kind verifiers --out env < bad
  assert_failure 65
  assert_output "env-export: stdin:1: a: asks.slides: 'six' is not of type 'integer'"
  run env-export --kind verifiers --out env < /dev/null
  assert_failure 65
  assert_output "env-export: stdin: no prompt in it"
  [ ! -e env ]
}
