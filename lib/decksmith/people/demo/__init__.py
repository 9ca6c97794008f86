"""From a request to a deck in the browser.

In: what a visitor types. Out: decks, drawn while they are written, and as files.

Used by demo-serve. May import render, decks, models and core.
"""
