load ../helper

rows() {
  for n in $(seq "$1" "$2"); do
    echo '{"id":"s'$n'","messages":[{"role":"user","content":"Deck '$n'"},{"role":"assistant","content":"# '$n'","reasoning_content":"So."}],"seed":{"n":'$n'}}'
  done
}

setup() {
  mkdir chat
  rows 1 40 > chat/train.jsonl
  rows 41 57 > chat/test.jsonl
}

@test "the summary says how many steps are made, and of what; the recipe keeps its parent, names its files absolutely, and leaves no gap" {
  run --separate-stderr sft-config --data chat --run run sft.max_num_epochs=3
  assert_success
  assert_output "{\"recipe\": \"run/recipe.yaml\", \"sha256\": \"$(sha256sum run/recipe.yaml | cut -c -64)\", \"model\": \
\"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16\", \"rows\": {\"train\": 40, \"validation\": 17}, \"batch\": 16, \"left_over\": 8, \"epochs\": 3, \
\"steps\": 6, \"val_period\": 2, \"save_period\": 2, \"warmup\": 1}"
  run cat run/recipe.yaml
  assert_line "defaults: /opt/nemo-rl/examples/configs/recipes/llm/sft-nanov3-30BA3B-2n8g-fsdp2-lora.yaml"
  assert_line "    data_path: $PWD/run/data/train.jsonl"
  assert_line "  checkpoint_dir: $PWD/run/checkpoints"
  assert_line "  _override_: true"
  refute_output --partial '???'
  run head -1 run/data/test.jsonl
  assert_output '{"id":"s41","messages":[{"role":"user","content":"Deck 41"},{"role":"assistant","content":"# 41","reasoning_content":"So."}]}'
}

# marks: long
# first: the summary says how many steps are made, and of what; the recipe keeps its parent, names its files absolutely, and leaves no gap
@test "the same call writes the same bytes" {
  sft-config --recipe smol-lora --data chat --run run policy.optimizer.kwargs.lr=2e-3 > first
  cp -r run before
  sft-config --recipe smol-lora --data chat --run run policy.optimizer.kwargs.lr=2e-3 | diff first -
  diff -r before run
}

# marks: long
# first: the summary says how many steps are made, and of what; the recipe keeps its parent, names its files absolutely, and leaves no gap
@test "too few rows, unknown recipes and broken overrides are refused in one line" {
  run sft-config --data chat --run run policy.train_global_batch_size=64
  assert_failure 65
  assert_output --partial "train.jsonl has 40 rows, less than one batch of 64"
  run sft-config --recipe mine --data chat --run run
  assert_failure 69
  assert_output --partial "recipes: lora, nemotron-nano-dpo, nemotron-nano-grpo, nemotron-nano-lora, smol-dpo, smol-grpo, smol-lora"
  run sft-config --data chat --run run lr
  assert_failure 78
  assert_line "sft-config: 'lr' is no override; write key=value, sft.max_num_epochs=3"
}

# marks: long
# first: tests/corpus/test_chat_data.py::test_every_kind_of_file_gives_the_same_rows
@test "data of another shape is converted once, said, and a folder may have a dot in its name" {
  mv chat chat.v2
  jq -c '{question: .messages[0].content, answer: .messages[1].content}' chat.v2/train.jsonl > chat.v2/train.json
  rm chat.v2/*.jsonl
  run --separate-stderr sft-config --recipe smol-lora --data chat.v2 --run run
  assert_success
  assert_equal "$stderr" "sft-config: chat.v2: 40 rows, question and answer (JSONL)
sft-config: question -> user, answer -> assistant
sft-config: 32 rows to train on, 8 held out, by requests"
  run jq -r '.sha256 | length' run/data/report.json
  assert_output 64
  stat -c %Y.%i run/data/train.jsonl > before
  sft-config --recipe smol-lora --data chat.v2 --run run > /dev/null
  stat -c %Y.%i run/data/train.jsonl | diff before -
}

# marks: long
# first: the summary says how many steps are made, and of what; the recipe keeps its parent, names its files absolutely, and leaves no gap
@test "rows without thoughts turn thinking off, and tools are kept as they are" {
  sed -i 's/,"reasoning_content":"So."//; s/"seed"/"tools":[{"name":"t","parameters":{}}],"seed"/' chat/*.jsonl
  run --separate-stderr sft-config --data chat --run run
  assert_success
  [[ $stderr == *"no row has a thought: policy.tokenizer.chat_template_kwargs.enable_thinking is false"* ]]
  run cat run/recipe.yaml
  assert_line "      enable_thinking: false"
  assert_line "    use_preserving_dataset: true"
}

# marks: long
# first: tests/training/test_recipes.py::test_another_base_takes_with_it_what_belongs_to_it
@test "another base brings its family's recipe and what belongs to it" {
  HF_HOME=$PWD/none run sft-config --base Qwen/Qwen3-8B --data chat --run run
  assert_success
  assert_output --partial '"model": "Qwen/Qwen3-8B"'
  run cat run/recipe.yaml
  assert_line "defaults: /opt/nemo-rl/examples/configs/sft.yaml"
  assert_line "      enable_thinking: true"
  assert_output --regexp $'exclude_modules:\n *- .\*lm_head\*.\n'
}
