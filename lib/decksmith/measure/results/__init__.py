"""What finished runs say and what may be said of them.

In: the records of runs (scores.jsonl, summary.json, protocol.json), or scores of another tool. Out: figures with intervals, sentences, plots, reports,
contradictions, capsules, the judge's card.

Used by run-*, record-sample, bench-compare. May import judging, render, decks, models and core.
"""
