"""Programs of strangers: a warm pool of cells, and the supervisor inside.

In: code, files, limits. Out: what it printed and how it ended; never more.

Used by bench-grade. May import core.
"""
