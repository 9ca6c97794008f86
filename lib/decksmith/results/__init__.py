"""What finished runs say, what may be said of them, and who vouches for them.

In: the records of runs (scores.jsonl, summary.json, protocol.json), or scores of another tool. Out: figures with intervals,
sentences, contradictions, capsules, and the memory of who compared what. Used by run-* and bench-compare; it may import judging,
render, decks, models and core, none of the rooms above.
"""
