"""From a request to a deck in the browser.

In: what a visitor types. Out: decks, drawn while they are written, and as files.

  ask      one ask as the events of its journal; the line before an endpoint
  session  the work: models, renderer, the asks of all visitors
  app      the two origins: the page, and the decks

Used by demo-serve. May import render, decks, models and core.
"""
