"""One server that answers as the base model and as the adapter.

In: an adapter. Out: an address, after the two names were heard to differ.

  adapter    what a PEFT folder says
  vllm       the command line of `vllm serve`, and its lint
  readiness  waiting for a server, and hearing whether its two names differ
  server     start, prove, publish, end

Used by model-serve, model-wait. May import models and core.
"""
