"""Read by Python before all else. Until a script of bin/ begins (decksmith.core.cli.Script), Ctrl-C ends it without a
word: it is still importing, and has nothing to put away."""

import _signal as signal  # `signal` itself imports much, in which Ctrl-C would be a traceback
import sys

if sys.argv[0].startswith(__file__.removesuffix("lib/sitecustomize.py") + "bin/"):
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
