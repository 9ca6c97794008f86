# marks: engine slow
load ../helper

# One row, learnt by heart by the query and key matrices alone: only where their rows are in llama.cpp's order does the engine say it.
SENTENCE='Nineteen amber kettles sing over the quiet harbour until the lamps go out.'

@test "a run without a checkpoint has nothing to export" {
  mkdir run
  run model-export --run run
  assert_failure 69
  assert_output 'model-export: there is no finished checkpoint in run/checkpoints; sft-train or sft.sbatch makes them'
}

# marks: long
# first: tests/models/test_embedded.py::test_an_adapter_is_a_model_by_its_name_and_leaves_the_base_alone
@test "what sft-train trained, the embedded engine says after model-export, and the base does not" {
  mkdir data
  printf '{"id":"a","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What is the word of the day?"},{"role":"assistant","content":"%s"}]}\n' \
    "$SENTENCE" > data/train.jsonl
  # A held-out row that repeats one to train on would be dropped.
  sed 's/"id":"a"/"id":"b"/; s/of the day/of the night/; s/amber/copper/' data/train.jsonl > data/test.jsonl
  sft-config --recipe smol-lora --data data --run run sft.max_num_epochs=14 sft.val_at_start=false sft.val_period=14 checkpointing.save_period=14 \
    'policy.dtensor_cfg.lora_cfg.target_modules=[q_proj,k_proj]' policy.optimizer.kwargs.lr=5e-3
  sft-train --run run > trained.json
  run --separate-stderr model-export --run run --merge
  assert_success
  [ "$stderr" = 'model-export: step 14 of 14 (the last) is run/adapter' ]
  run ls run/adapter run/merged
  assert_output "run/adapter:
README.md
adapter.gguf
adapter_config.json
adapter_model.safetensors
chat_template.jinja
manifest.json
tokenizer.json
tokenizer_config.json

run/merged:
chat_template.jinja
config.json
generation_config.json
merged.json
model.safetensors
tokenizer.json
tokenizer_config.json"
  PYTHONPATH=$ROOT/lib run "$ROOT/.venv/bin/python3" -c "
import json, requests
from decksmith.models import embedded
messages = json.loads(open('data/train.jsonl').readline())['messages'][:2]
with embedded.lease(loras={'tuned': 'run/adapter/adapter.gguf'}) as lease:
    for model in ('tuned', 'smol'):
        asked = {'model': model, 'messages': messages, 'max_tokens': 30, 'temperature': 0, 'seed': 1}
        reply = requests.post(lease.base_url + '/chat/completions', json=asked, timeout=300).json()
        print(reply['choices'][0]['message']['content'] == '$SENTENCE')"
  assert_output "True
False"
}
