from decksmith_decks.taskset import DecksEnv, DecksTaskset

__all__ = ["DecksEnv", "DecksTaskset"]
