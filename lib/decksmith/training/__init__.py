"""LoRA by NeMo-RL or on this machine: recipes, the check before a GPU is asked for, jobs, checkpoints, adapters.

In: chat JSONL and a recipe. Out: a run folder with checkpoints in NeMo-RL's layout, and an adapter.

Used by sft-*, job-submit, ckpt-watch, model-export. May import hub, results, models and core.
"""
