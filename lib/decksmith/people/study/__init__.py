"""Blind studies: people compare two decks for one request, do not know who made them, and are
counted with intervals.

In: two or more finished runs, or votes that others collected. Out: a study (a folder with pairs,
pictures and votes), and its tally.

Used by pair-build, vote-* and judge-compare. May import results, judging, models and core.
"""
