"""A deck as pictures: contained workers with a browser each, what they made before, and decks built as sites.

In: decks. Out: PNG files, errors by line, an X-ray of each slide; HTML, PDF and PowerPoint.

Used by deck-render, deck-build, draft-check. May import decks, models and core.
"""
