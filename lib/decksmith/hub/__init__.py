"""What is published on the Hugging Face Hub, and nothing else of a folder.

In: a corpus, results or an adapter. Out: a card, the difference to what is there, one commit.

Used by hub-push and model-export. May import results and core.
"""
