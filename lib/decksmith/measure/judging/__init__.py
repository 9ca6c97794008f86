"""What a rendered deck is worth: offline measures, a vision judge, the arithmetic of scores, and what a run held fixed.

In: rendered records. Out: scores by dimension with reasons; the identity by which runs may be compared.

Used by deck-judge, deck-score, run-summarize. May import render, decks, models and core.
"""
