from decksmith_decks.taskset import DecksTaskset

__all__ = ["DecksTaskset"]
