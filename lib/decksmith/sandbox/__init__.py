"""Programs of strangers: a warm pool of cells, the supervisor inside, and the same over HTTP.

In: code, files, limits. Out: what it printed and how it ended; never more.

  pool        run(code), pair, Pool: cells that stand ready
  cell        one run: its limits, what goes in, what comes out
  session     an interpreter whose variables persist
  launch      the walls around all cells, and the command line into them
  supervisor  the inside. It is loaded by path there and imports nothing of this package
  app         the HTTP server

Used by sandbox-serve, bench-grade. May import core.
"""
