"""Evaluations and their metrics for somebody else's training loop.

In: jobs over HTTP, which survive kill -9. Out: metrics; trainer.py asks for them and needs nothing of this package.

  request, sampling  what may be asked, as a pydantic model, and what holds where nothing is said
  router             the servers of the model: which may be asked, and what they say of it
  jobs, jobqueue     jobs on disk, and the queue that works on them; worker is the process of one benchmark, metrics its numbers
  app, client        the two doors, and whoever knocks (eval-request)
  trainer            one file for trainers' images. It is also run by its path, so no module here is called like one that it imports:
                     neither http nor queue
  lint               the traps of a trainer's evaluation file

Used by eval-*. May import benchmarks, judging, models and core.
"""
