"""From a reply to a number and a sentence: decks, pictures, judges, results."""
