"""How often a test draws what nobody wrote: a twentieth of it in `make test`, all of it in `make fuzz`.

Such a test wears the mark `fuzz`.
"""

import os


def times(number: int) -> int:
    """`number` draws, or as many as one run of all the tests can afford."""
    return number if "DECKSMITH_FUZZ" in os.environ else number // 20
