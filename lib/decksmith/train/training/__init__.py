"""LoRA by NeMo-RL or on this machine, SFT, DPO or GRPO: recipes, the check before a GPU is asked for, jobs, checkpoints, adapters.

In: chat JSONL, preference pairs or prompts, and a recipe. Out: a run folder with checkpoints in NeMo-RL's layout, and an adapter.

Used by sft-*, rl-check, job-submit, ckpt-watch, model-export. May import corpus, hub, results, models and core.
"""
