"""Blind studies: pairs of decks, the page on which people vote, ballots, votes from elsewhere, and what may be believed of it.

In: two finished runs. Out: a study, and its tally.

Used by pair-build, vote-*. May import results, judging and core.
"""
