"""Programs of strangers: a warm pool of cells, the supervisor inside, and the same over HTTP.

In: code, files, limits. Out: what it printed and how it ended; never more.

Used by sandbox-serve, bench-grade. May import core.
"""
