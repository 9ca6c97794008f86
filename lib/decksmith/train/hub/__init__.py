"""What is published on the Hugging Face Hub, and nothing else of a folder; base models in this
site's cache.

In: a corpus, results or an adapter. Out: a card, the difference to what is there, one commit.

Used by hub-push, model-fetch and model-export. May import results, models and core.
"""
