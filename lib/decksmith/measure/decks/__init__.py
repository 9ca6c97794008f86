"""A deck as text: its slides, features and findings, and the pictures that it asks for.

In: a reply or a deck's markdown. Out: the deck, cleaned and parsed; its features; findings by line; pictures.

Used by deck-parse, deck-illustrate, deck-scan, deck-xray. May import models and core.
"""
