"""Blind studies: who voted, and what may be believed of it.

In come a study's people and votes, or votes that were cast elsewhere; out go crowds and studies that vote-tally counts. Used by vote-*;
it may import results and core, none of the rooms above.
"""
