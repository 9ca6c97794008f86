"""General benchmarks: rows from their sources, prompts, graders, metrics.

In: a benchmark's TOML and a model's replies. Out: graded rows and the metrics of NeMo-Skills, with intervals.

Used by bench-*. May import sandbox, results, models and core.
"""
