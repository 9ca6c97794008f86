"""The training data: seeds, one authored deck for each, the rules that a draft must keep, leaks,
the split, preference pairs.

In: seeds. Out: chat JSONL that shares nothing with the prompts of an evaluation.

Used by seed-*, draft-*, chat-overlap, chat-split, chat-prefer, rl-check, bench-overlap. May import
benchmarks, judging, render, decks, models and core.
"""
