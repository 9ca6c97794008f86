"""Evaluations and their metrics for somebody else's training loop.

In: jobs over HTTP, which survive kill -9. Out: metrics; eval_client.py asks for them and needs
nothing of this package.

eval_client.py is also run by its path, where modules beside it hide the standard library's: that is
why none is called http or queue.

Used by eval-*. May import benchmarks, judging, models and core.
"""
