"""How models are asked: the registry of models, one client for chat endpoints, the embedded engine, and who serves now.

In: messages and sampling. Out: a reply with its cost, or the failure of one request.

Used by chat-generate, seed-sample, and whatever asks a model: deck-judge, seed-author, demo-serve. May import core.
"""
