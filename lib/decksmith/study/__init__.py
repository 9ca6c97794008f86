"""Blind studies: people compare two decks for one request and do not know who made them.

In: two or more finished runs. Out: a study (a folder with pairs, pictures and votes), and its tally.

pairs       which decks are compared            estimates  preferences and strengths (intervals: how sure)
pictures    what a voter sees of a pair         people     who is left out, how far people agree
store       the study on disk                   judge      the judge beside people
queues      who is given which pairs, in order  adaptive   which pairs are asked about next
messages    what a page may send                crowds     names that may be fewer people
page, app   the pages and their server          tally      everything that the votes say, as one object
ballots     pages as files, and their answers   words      it as text and tables
outside     votes that others collected         plots      it as pictures

Used by pair-build, vote-serve, vote-export, vote-import and vote-tally. May import results, judging and core.
"""
