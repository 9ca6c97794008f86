"""Graders: a description of assets/benchmarks, a task and a reply go in; verdict, score, answer and detail come out.

decksmith.bench.benchmarks.grading runs them in processes of their own. They may import the sandbox and nothing above it.
"""
