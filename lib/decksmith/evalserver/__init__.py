"""Evaluations and their metrics for somebody else's training loop.

In: jobs over HTTP, which survive kill -9. Out: metrics; trainer.py asks for them and needs nothing of this package.

Used by eval-*. May import benchmarks, judging, models and core.
"""
