"""Evaluations and their metrics for somebody else's training loop.

In: jobs over HTTP, which survive kill -9. Out: metrics; trainer.py asks for them and needs nothing
of this package.

  request, sampling  what may be asked, as a pydantic model, and what holds where nothing is said
  router             the servers of the model: which may be asked, and what they say of it
  jobs, jobqueue     jobs on disk, and the queue that works on them
  worker, metrics    the process of one benchmark, and its numbers
  app, client        the two doors, and whoever knocks (eval-request)
  trainer            one file for trainers' images
  lint               the traps of a trainer's evaluation file

trainer.py is also run by its path, where modules beside it hide the standard library's: that is why
none is called http or queue.

Used by eval-*. May import benchmarks, judging, models and core.
"""
