"""decksmith: from a language model to a fine-tuned one, honestly measured."""

__version__ = "0.1.0"
